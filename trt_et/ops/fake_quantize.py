"""Define the operator of NVIDIA's modelopt that quantizes and dequantizes in one call.

``tensorrt::quantize_op`` exists only if modelopt is imported, and computes int8 on a GPU only.
Partitions contain ``trt_et::fake_quantize`` instead. It has the same arguments, exists in every
process with this package, and computes the same numbers on any device.
"""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor
from torch._ops import OpOverload

FOREIGN_NAME: Final = "tensorrt::quantize_op"
"""Its name in modelopt."""

FP8_LIMIT: Final = 448.0
"""The largest number of e4m3."""

SMALLEST_AMAX: Final = 2.0**-24
"""The largest magnitude that modelopt treats as zero."""

_FP8_NORMAL: Final = 2.0**-6  # The smallest number of e4m3 with all of its bits.
_DROPPED_BITS: Final = 20  # The bits that a float32 has and e4m3 lacks.
# Added to a small number, this leaves multiples of 2**-9, the smallest number of e4m3.
_FP8_SUBNORMAL: Final = 1.5 * 2.0**14


def limits(num_bits: int, exponent_bits: int, unsigned: bool, narrow: bool) -> tuple[float, float]:
    """Return the smallest and the largest quantized number."""
    if exponent_bits:
        return -FP8_LIMIT, FP8_LIMIT
    high = 2.0 ** (num_bits - 1 + unsigned) - 1
    return (0.0 if unsigned else -high if narrow else -high - 1), high


def fake_quantize(
    x: Tensor,
    amax: Tensor,
    num_bits: int = 8,
    exponent_bits: int = 0,
    unsigned: bool = False,
    narrow_range: bool = True,
) -> Tensor:
    """Round numbers to int8 or fp8 values, with common float operators.

    Args:
        x: The numbers.
        amax: The largest magnitude, one for all of ``x`` or of a shape that broadcasts to it.
        num_bits: Bits of a quantized number.
        exponent_bits: Bits of its exponent: 0, or 4 for e4m3.
        unsigned: No negative numbers.
        narrow_range: Without the smallest number, so that the range is symmetric.
    """
    low, high = limits(num_bits, exponent_bits, unsigned, narrow_range)
    wide, largest = x.to(torch.float32), amax.to(torch.float32)
    is_zero = largest <= SMALLEST_AMAX
    scale = high / torch.where(is_zero, 1.0, largest)
    if exponent_bits:
        rounded = round_to_fp8(torch.clamp(wide * scale, low, high))
        return (rounded * (1 / scale)).to(x.dtype)
    rounded = torch.clamp(torch.round(wide * torch.where(is_zero, 0.0, scale)), low, high)
    return (rounded / scale).to(x.dtype)


def round_to_fp8(x: Tensor) -> Tensor:
    """Round to e4m3, halves to even, in float32: the same as a cast and back.

    Veltkamp's splitting keeps the first four bits of a number.
    """
    lifted = x * (2.0**_DROPPED_BITS + 1)
    normal = lifted - (lifted - x)
    subnormal = (x + _FP8_SUBNORMAL) - _FP8_SUBNORMAL
    return torch.where(torch.abs(x) < _FP8_NORMAL, subnormal, normal)


torch.library.define(
    "trt_et::fake_quantize",
    "(Tensor input, Tensor amax, int num_bits, int exponent_bits, bool unsigned, "
    "bool narrow_range) -> Tensor",
)
torch.library.impl("trt_et::fake_quantize", "CompositeExplicitAutograd", fake_quantize)

FAKE_QUANTIZE: Final[OpOverload] = torch.ops.trt_et.fake_quantize.default
"""The operator of this package."""
