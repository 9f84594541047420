"""4-bit weights as a constant of 4 bits and TensorRT's block-wise dequantize layer.

Import it only after Torch-TensorRT (see ``registry.py``), whose converters store no 4-bit
constants.
"""

from __future__ import annotations

from typing import Any

import tensorrt as trt
import torch
from torch.fx import Node
from torch_tensorrt.dynamo.conversion.converter_utils import get_trt_tensor

from trt_et.errors import BuilderError

__all__ = ["add_int4_groups", "pack_int4"]


def add_int4_groups(ctx: Any, node: Node, args: Any, kwargs: Any) -> Any:  # noqa: ANN401
    """Add the layers of one ``dequantize_groups`` (``rewrites/int4_groups.py``).

    Args:
        ctx: Torch-TensorRT's ``ConversionContext``.
        node: The call.
        args: The weight and its scales, both constants.
        kwargs: Empty.

    Returns:
        TensorRT's tensor.

    Raises:
        BuilderError: TensorRT refuses the layer.
    """
    weight, scale = (torch.as_tensor(argument) for argument in args)
    packed = pack_int4(weight)
    name = f"{node.name}_weight"
    ctx.record_weight(name, packed)  # Keeps the memory until the engine is built.
    values = trt.Weights(trt.int4, packed.data_ptr(), weight.numel())
    constant = ctx.net.add_constant(tuple(weight.shape), values)
    scales = get_trt_tensor(ctx, scale, f"{node.name}_scale", dtype=scale.dtype)
    layer = ctx.net.add_dequantize(constant.get_output(0), scales, scales.dtype)
    if layer is None:
        raise BuilderError(
            f"TensorRT {trt.__version__} refuses to dequantize the 4-bit weight of {node.name}; "
            "leave the node to the CPU (excluded_ops=...)"
        )
    constant.name = name
    layer.name = f"{node.name}_dequantize"
    return layer.get_output(0)


def pack_int4(weight: torch.Tensor) -> torch.Tensor:
    """Pack two numbers into each byte, the first in the lower half.

    Args:
        weight: int8 from -8 to 7, an even number of them.
    """
    pairs = weight.contiguous().reshape(-1, 2).to(torch.uint8) & 0xF
    return pairs[:, 0] | (pairs[:, 1] << 4)
