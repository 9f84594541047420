"""Cumulative sums as TensorRT's own layer.

Import it only after Torch-TensorRT (see ``registry.py``), whose converter makes a loop.
TensorRT-RTX 1.5 does not build that loop (1.6 does), and causal language models make their masks
with cumulative sums.
"""

from __future__ import annotations

from typing import Any, Final

import tensorrt as trt
import torch
from torch.fx import Node
from torch_tensorrt.dynamo.conversion.converter_utils import cast_trt_tensor, get_trt_tensor

__all__ = ["add_cumulative_sum", "has_cumulative_layer"]

# Half precision adds up in float32, as torch does on a CPU.
_SUMMED_IN: Final = {torch.float16: torch.float32, torch.bfloat16: torch.float32}


def has_cumulative_layer() -> bool:
    """Check whether this TensorRT has the layer: 10.6 or later, and TensorRT-RTX."""
    return hasattr(trt.INetworkDefinition, "add_cumulative")


def add_cumulative_sum(ctx: Any, node: Node, args: Any, kwargs: Any) -> Any:  # noqa: ANN401
    """Add the layer of one ``aten.cumsum``.

    Args:
        ctx: Torch-TensorRT's ``ConversionContext``.
        node: The call. The sum is computed in its value's dtype, except for half precision.
        args: The tensor, as TensorRT's or as a constant, and the dimension.
        kwargs: A dtype, which the node's value has.

    Returns:
        TensorRT's tensor, of the input's shape.
    """
    dtype = node.meta["val"].dtype
    summand = get_trt_tensor(ctx, args[0], f"{node.name}_input")
    summand = cast_trt_tensor(ctx, summand, _SUMMED_IN.get(dtype, dtype), f"{node.name}_summand")
    if len(summand.shape) > 0:  # A single number is its own sum.
        dim = torch.tensor(args[1] % len(summand.shape), dtype=torch.int32)
        axis = get_trt_tensor(ctx, dim, f"{node.name}_axis", min_rank=0)
        layer = ctx.net.add_cumulative(summand, axis, trt.CumulativeOperation.SUM, False, False)
        layer.name = f"cumulative_sum_{node.name}"
        summand = layer.get_output(0)
    return cast_trt_tensor(ctx, summand, dtype, f"{node.name}_sum")
