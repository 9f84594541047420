"""``gather`` as TensorRT's gather of elements, also of dynamic sizes.

Import it only after Torch-TensorRT (see ``registry.py``). Torch-TensorRT 2.13 adds the same layer,
but refuses the operator if any size is dynamic.
"""

from __future__ import annotations

from typing import Any

import tensorrt as trt
import torch
from torch.fx import Node
from torch_tensorrt.dynamo.conversion.converter_utils import cast_trt_tensor, get_trt_tensor

__all__ = ["add_gather"]


def add_gather(ctx: Any, node: Node, args: Any, kwargs: Any) -> Any:  # noqa: ANN401
    """Add the layer of one ``aten.gather``.

    Args:
        ctx: Torch-TensorRT's ``ConversionContext``.
        node: The call; its tensors have at least one dimension.
        args: The tensor, the dimension and the index, tensors as TensorRT's or as constants.
        kwargs: Unused: whether gradients are sparse.

    Returns:
        TensorRT's tensor, of the index's shape.
    """
    source = get_trt_tensor(ctx, args[0], f"{node.name}_input")
    index = get_trt_tensor(ctx, args[2], f"{node.name}_index")
    index = cast_trt_tensor(ctx, index, torch.int32, f"{node.name}_indices")
    layer = ctx.net.add_gather_v2(source, index, trt.GatherMode.ELEMENT)
    layer.axis = args[1] % len(source.shape)
    layer.name = f"gather_{node.name}"
    return layer.get_output(0)
