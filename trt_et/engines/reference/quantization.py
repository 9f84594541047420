"""Decomposes quantize and dequantize operators into plain ATen, with torch's results.

Only the reference builder needs this: the stock ExecuTorch runtime has no kernels for them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch
from torch import Tensor

from trt_et.ops.fake_quantize import FAKE_QUANTIZE, fake_quantize

__all__ = ["QUANTIZATION_PARTS"]


def _quantize(
    x: Tensor,
    scale: Tensor | float,
    zero_point: Tensor | int,
    low: int,
    high: int,
    dtype: torch.dtype,
) -> Tensor:
    # torch multiplies by the reciprocal, and rounds halves to even numbers.
    rounded = torch.round(x.to(torch.float32) * (1.0 / scale)) + zero_point
    return torch.clamp(rounded, low, high).to(dtype)


def _quantize_per_channel(
    x: Tensor,
    scales: Tensor,
    zero_points: Tensor,
    axis: int,
    low: int,
    high: int,
    dtype: torch.dtype,
) -> Tensor:
    scale, zero_point = (_along(values, axis, x.dim()) for values in (scales, zero_points))
    return _quantize(x, scale, zero_point, low, high, dtype)


def _dequantize(
    x: Tensor,
    scale: Tensor | float,
    zero_point: Tensor | int,
    low: int,
    high: int,
    dtype: torch.dtype,
    *,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    return ((x.to(torch.float32) - zero_point) * scale).to(out_dtype or torch.float32)


def _dequantize_per_channel(
    x: Tensor,
    scales: Tensor,
    zero_points: Tensor | None,
    axis: int,
    low: int,
    high: int,
    dtype: torch.dtype,
    *,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    scale = _along(scales, axis, x.dim())
    zero_point = 0 if zero_points is None else _along(zero_points, axis, x.dim())
    return _dequantize(x, scale, zero_point, low, high, dtype, out_dtype=out_dtype)


def _along(values: Tensor, axis: int, rank: int) -> Tensor:
    return values.reshape([-1 if dim == axis % rank else 1 for dim in range(rank)])


QUANTIZATION_PARTS: Final[dict[str, Callable[..., Any]]] = {
    "quantized_decomposed::quantize_per_tensor": _quantize,
    "quantized_decomposed::quantize_per_channel": _quantize_per_channel,
    "quantized_decomposed::dequantize_per_tensor": _dequantize,
    "quantized_decomposed::dequantize_per_channel": _dequantize_per_channel,
    FAKE_QUANTIZE._schema.name: fake_quantize,
}
"""Decompositions by the operator's name."""
