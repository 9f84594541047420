"""Computes PT2E's operators that quantize to 8-bit floats and dequantize in float arithmetic.

Those operators round to whole numbers before they make 8-bit floats; TensorRT's layers do not, and
ExecuTorch takes no program with such tensors.
"""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.fx import GraphModule, Node

from trt_et.graph.arguments import named_arguments
from trt_et.graph.inlining import inline
from trt_et.ops.fake_quantize import round_to_fp8

_QUANTIZE: Final = "quantized_decomposed::quantize_per_tensor"
_DEQUANTIZE: Final = "quantized_decomposed::dequantize_per_tensor"


def quantizes_to_fp8(node: Node) -> bool:
    """Return whether a node makes 8-bit floats (e4m3) that are only dequantized again."""
    return (
        _calls(node, _QUANTIZE)
        and named_arguments(node)["dtype"] is torch.float8_e4m3fn
        and all(_calls(user, _DEQUANTIZE) for user in node.users)
    )


def compute_in_floats(module: GraphModule) -> int:
    """Replace a module's pairs of such operators by float computations; return their number."""
    nodes = [node for node in module.graph.nodes if quantizes_to_fp8(node)]
    for node in nodes:
        users = list(node.users)
        inline(module, node, _quantize)
        for user in users:
            inline(module, user, _dequantize)
    return len(nodes)


def _calls(node: Node, name: str) -> bool:
    return (
        isinstance(node.target, OpOverload)
        and node.target._schema.name == name
        and node.target._overloadname == "default"
    )


def _quantize(
    x: Tensor, scale: float, zero_point: int, low: int, high: int, dtype: torch.dtype
) -> Tensor:
    rounded = torch.round(x.to(torch.float32) * (1.0 / scale)) + zero_point
    return round_to_fp8(torch.clamp(rounded, low, high))


def _dequantize(
    x: Tensor,
    scale: float,
    zero_point: int,
    low: int,
    high: int,
    dtype: torch.dtype,
    *,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    return ((x - zero_point) * scale).to(out_dtype or torch.float32)
