"""Remainders of floats, as exact as in torch.

Torch-TensorRT 2.13 computes ``x - floor(x / y) * y``, whose quotient and product are rounded:
``2 % 0.1`` is 1e-8 instead of 0.0999, and a remainder by an infinity is NaN.

These functions compute the quotient in steps of 12 bits, from the top, and split the divisor into
two parts of 12 bits. All products and differences are then numbers of float32, so nothing is
rounded, even if an engine fuses a product with the difference that follows it.
"""

from __future__ import annotations

import math
from typing import Any, Final

import torch
from torch import Tensor

__all__ = ["float_remainder", "fmod"]

_BITS: Final = 12
# The exponent that all finite numbers are below.
_LARGEST: Final = {torch.float16: 16, torch.bfloat16: 128, torch.float32: 128}
# Quotients of two tensors are exact up to 2 ** (12 * steps): all of half precision, and 2 ** 132.
_STEPS: Final = {torch.float16: 4, torch.bfloat16: 11, torch.float32: 11}
_HUGE: Final = 2.0**100


def fmod(x: Tensor, y: Any) -> Any:  # noqa: ANN401
    """Compute ``aten.fmod``, which has the sign of ``x``.

    Args:
        x: The dividend, a tensor.
        y: The divisor, a tensor or a number.

    Returns:
        The remainder; ``NotImplemented`` for integers, which ``rewrites/integer_division.py``
        takes, and for float64, which TensorRT does not have.
    """
    dtype = torch.result_type(x, y)
    if dtype not in _LARGEST:
        return NotImplemented
    return _fmod(*_operands(x, y, dtype), dtype).to(dtype)


def float_remainder(x: Any, y: Any) -> Any:  # noqa: ANN401
    """Compute ``aten.remainder``, which has the sign of ``y``; as :func:`fmod` does."""
    dtype = torch.result_type(x, y)
    if dtype not in _LARGEST:
        return NotImplemented
    x, y = _operands(x, y, dtype)
    rest = _fmod(x, y, dtype)
    if isinstance(y, Tensor):
        differs = (rest != 0) & ((rest < 0) != (y < 0))
    else:
        differs = rest < 0 if y > 0 else rest > 0
    return torch.where(differs, rest + y, rest).to(dtype)


def _operands(x: Any, y: Any, dtype: torch.dtype) -> tuple[Tensor, Any]:  # noqa: ANN401
    """Return both in float32, rounded to the dtype first."""
    if not isinstance(x, Tensor):
        x = torch.full((), x, dtype=dtype)
    if isinstance(y, int | float):
        return x.to(dtype).to(torch.float32), torch.tensor(y, dtype=dtype).item()
    if not isinstance(y, Tensor):  # A number that depends on sizes.
        y = torch.full((), y, dtype=dtype)
    return x.to(dtype).to(torch.float32), y.to(dtype).to(torch.float32)


def _fmod(x: Tensor, y: Any, dtype: torch.dtype) -> Tensor:  # noqa: ANN401
    size = x.abs()
    if isinstance(y, Tensor):
        rest = _rest_by_tensor(size, y.abs(), _STEPS[dtype])
    elif math.isinf(y):
        rest = torch.where(size == math.inf, math.nan, size)
    elif y == 0 or math.isnan(y):
        rest = size * math.nan
    else:
        rest = _rest_by_number(size, abs(y), _LARGEST[dtype])
    return torch.where(x < 0, -rest, rest)


def _rest_by_number(x: Tensor, y: float, largest: int) -> Tensor:
    mantissa, exponent = math.frexp(y)
    high = math.ldexp(math.floor(math.ldexp(mantissa, _BITS)), exponent - _BITS)
    low = y - high
    steps = max(math.ceil((largest - exponent + 1) / _BITS), 1)
    if low == 0 and mantissa == 0.5:  # A power of two: its quotient is not rounded.
        beyond = x * 0  # NaN for an infinity.
        rest = x - torch.floor(x * (1 / y)) * y if y >= 2.0**-100 else beyond
        return torch.where(x >= y * 2.0**24, beyond, rest) if y >= 2.0**-100 else rest
    for step in reversed(range(steps)):
        scale = 2.0 ** (_BITS * step)
        quotient = x / (y * scale)
        # Rounded up, the first product could be beyond float32.
        whole = torch.floor(quotient) if step == steps - 1 else torch.round(quotient)
        x = x - whole * (high * scale)
        if low:
            x = x - whole * (low * scale)
    return torch.where(x < 0, x + y, x)


def _rest_by_tensor(x: Tensor, y: Tensor, steps: int) -> Tensor:
    # A product is up to one and a half times as large as its minuend.
    is_huge = y > _HUGE
    scale = torch.where(is_huge, 2.0**-24, 2.0**-4)
    rest, divisor = x * scale, y * scale
    # The sum drops the lower half of the bits; a product by a power of two is exact.
    high = (divisor + divisor * 2.0**_BITS) - divisor * 2.0**_BITS
    low = divisor - high
    for step in reversed(range(steps)):
        power = 2.0 ** (_BITS * step)
        whole = torch.round(rest * (1 / power) / divisor)
        rest = rest - whole * high * power - whole * low * power
    rest = torch.where(rest < 0, rest + divisor, rest)
    rest = torch.where(is_huge, rest * 2.0**24, rest * 2.0**4)
    return torch.where(x < y, x, rest)
