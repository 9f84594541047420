"""Casts as TensorRT's own layer, also between an input and an output of dynamic shape.

Import it only after Torch-TensorRT (see ``registry.py``). Torch-TensorRT 2.13 and 2.14 have two
converters of ``aten._to_copy``; the one for a cast of an input that is returned takes static shapes
only.
"""

from __future__ import annotations

from typing import Any

from torch.fx import Node
from torch_tensorrt.dynamo.conversion.converter_utils import cast_trt_tensor, get_trt_tensor

__all__ = ["add_cast"]


def add_cast(ctx: Any, node: Node, args: Any, kwargs: Any) -> Any:  # noqa: ANN401
    """Add the layer of one ``aten._to_copy``; none if the tensor has the dtype.

    Args:
        ctx: Torch-TensorRT's ``ConversionContext``.
        node: The call.
        args: The tensor, as TensorRT's or as a constant.
        kwargs: The dtype, if the call changes it; layouts and devices are ExecuTorch's.

    Returns:
        TensorRT's tensor, of the input's shape.
    """
    tensor = get_trt_tensor(ctx, args[0], f"{node.name}_input")
    return cast_trt_tensor(ctx, tensor, kwargs.get("dtype", tensor.dtype), node.name)
