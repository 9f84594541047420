"""``where`` as TensorRT's select layer, in the dtype that torch has.

Import it only after Torch-TensorRT (see ``registry.py``). The converter of Torch-TensorRT 2.13
knows float32 and float16 and makes int32 of all else: bfloat16 loses its fraction, int64 its upper
half.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Node
from torch_tensorrt.dynamo.conversion.converter_utils import (
    cast_trt_tensor,
    get_trt_tensor,
    prepend_ones,
)

__all__ = ["add_select"]


def add_select(ctx: Any, node: Node, args: Any, kwargs: Any) -> Any:  # noqa: ANN401
    """Add the layer of one ``aten.where.self``.

    Args:
        ctx: Torch-TensorRT's ``ConversionContext``.
        node: The call; both choices are cast to its value's dtype.
        args: The condition and the two choices, as TensorRT's tensors or as constants.
        kwargs: Empty.

    Returns:
        TensorRT's tensor, of the shape that the three broadcast to.
    """
    value = node.meta["val"]
    # TensorRT selects between everything but these.
    dtype = torch.int32 if value.dtype == torch.uint8 else value.dtype
    tensors = []
    for name, argument, wanted in zip(
        ("condition", "chosen", "other"), args, (torch.bool, dtype, dtype), strict=True
    ):
        label = f"{node.name}_{name}"
        tensor = get_trt_tensor(ctx, argument, label, min_rank=0)
        tensor = cast_trt_tensor(ctx, tensor, wanted, f"{label}_cast")
        missing = value.dim() - len(tensor.shape)
        tensors.append(prepend_ones(ctx, tensor, f"{label}_ones", missing) if missing else tensor)
    layer = ctx.net.add_select(*tensors)
    layer.name = f"select_{node.name}"
    return cast_trt_tensor(ctx, layer.get_output(0), value.dtype, f"{node.name}_result")
