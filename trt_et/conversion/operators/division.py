"""Divisions and remainders as exact as torch's.

Of integers: Torch-TensorRT 2.13 takes the sign of a quotient from the product of the operands,
which overflows in integers and is 0 if a float is divided by 0. It computes a remainder from two
such divisions, and does not truncate bfloat16 at all.

Of floats: it computes ``x - floor(x / y) * y``, whose quotient and product are rounded: ``2 % 0.1``
is 1e-8 instead of 0.0999, ``1 // 0.1`` is 10 instead of 9, and a remainder by an infinity is NaN.
``fmod`` computes the quotient in steps of 12 bits, from the top, and splits the divisor into
two parts of 12 bits. All products and differences are then numbers of float32, so nothing is
rounded, even if an engine fuses a product with the difference that follows it.
"""

from __future__ import annotations

import math
from typing import Any, Final

import torch
from torch import Tensor

from trt_et.conversion.operator import Operator

aten = torch.ops.aten

_DIVISIONS: Final = (aten.div.Tensor_mode, aten.div.Scalar_mode)
_FMODS: Final = (aten.fmod.Tensor, aten.fmod.Scalar)
_REMAINDERS: Final = (
    aten.remainder.Tensor,
    aten.remainder.Scalar,
    aten.remainder.Scalar_Tensor,
)

_BITS: Final = 12
# The exponent that all finite numbers are below.
_LARGEST: Final = {torch.float16: 16, torch.bfloat16: 128, torch.float32: 128}
# Quotients of two tensors are exact up to 2 ** (12 * steps): all of half precision, and 2 ** 132.
_STEPS: Final = {torch.float16: 4, torch.bfloat16: 11, torch.float32: 11}
_HUGE: Final = 2.0**100
_TINY: Final = 2.0**-60


def fmod(x: Tensor, y: Any) -> Any:  # noqa: ANN401
    """Compute ``aten.fmod``, which has the sign of ``x``.

    It returns ``NotImplemented`` for float64, which TensorRT does not have.
    """
    dtype = torch.result_type(x, y)
    if not dtype.is_floating_point:
        x, y = _integers(x, y, dtype)
        return x - _truncated(x, y) * y
    if dtype not in _LARGEST:
        return NotImplemented
    return _fmod(*_operands(x, y, dtype), dtype).to(dtype)


def remainder(x: Any, y: Any) -> Any:  # noqa: ANN401
    """Compute ``aten.remainder``, which has the sign of ``y``; as ``fmod`` does."""
    dtype = torch.result_type(x, y)
    if not dtype.is_floating_point:
        x, y = _integers(x, y, dtype)
        return x - torch.div(x, y, rounding_mode="floor") * y
    if dtype not in _LARGEST:
        return NotImplemented
    x, y = _operands(x, y, dtype)
    rest = _fmod(x, y, dtype)
    if isinstance(y, Tensor):
        differs = (rest != 0) & ((rest < 0) != (y < 0))
    else:
        differs = rest < 0 if y > 0 else rest > 0
    return torch.where(differs, rest + y, rest).to(dtype)


def divide(x: Any, y: Any, *, rounding_mode: str | None = "floor") -> Any:  # noqa: ANN401
    """Compute ``aten.floor_divide`` and ``aten.div``: floats rounded down, any dtype truncated.

    A quotient of floats is rounded down by the exact remainder. The function returns
    ``NotImplemented`` for other roundings and dtypes.
    """
    dtype = torch.result_type(x, y)
    if rounding_mode == "trunc":
        if dtype.is_floating_point:
            return truncate(torch.div(x, y))
        return _truncated(*_integers(x, y, dtype))
    if rounding_mode != "floor" or dtype not in _LARGEST:
        return NotImplemented
    x, rounded = _operands(x, y, dtype)
    # Unlike in a remainder, torch does not round the divisor to half precision.
    if isinstance(y, Tensor):
        y = y.to(torch.float32)
    else:
        y = torch.tensor(y, dtype=torch.float32).item() if isinstance(y, int | float) else rounded
    rest = _fmod(x, y, dtype)
    whole = torch.round((x - rest) / y)
    whole = torch.where((rest != 0) & ((rest < 0) != (y < 0)), whole - 1, whole)
    if isinstance(y, Tensor):
        whole = torch.where(y == 0, x / y, whole)
    elif y == 0:
        whole = x / y
    return whole.to(dtype)


def truncate(x: Tensor) -> Any:  # noqa: ANN401
    """Compute ``aten.trunc`` of floats."""
    return torch.where(x < 0, x.ceil(), x.floor()) if x.is_floating_point() else NotImplemented


def _tensor(number: Any, dtype: torch.dtype) -> Tensor:  # noqa: ANN401
    """Return a tensor, or a number that may depend on sizes, as a tensor of the dtype."""
    return number.to(dtype) if isinstance(number, Tensor) else torch.full((), number, dtype=dtype)


def _integers(x: Any, y: Any, dtype: torch.dtype) -> tuple[Tensor, Any]:  # noqa: ANN401
    """Return both in the dtype; a divisor that is a known number stays one."""
    return _tensor(x, dtype), y if isinstance(y, int) else _tensor(y, dtype)


def _truncated(x: Tensor, y: Any) -> Tensor:  # noqa: ANN401
    """Return the quotient of integers, cut off."""
    down = torch.div(x, y, rounding_mode="floor")
    # It is one too low if it is negative and leaves a rest, which has the divisor's sign.
    rest = x - down * y
    low: Tensor = ((x < 0) ^ (rest < 0)) & (rest != 0)
    return down + low.to(dtype=down.dtype)


def _operands(x: Any, y: Any, dtype: torch.dtype) -> tuple[Tensor, Any]:  # noqa: ANN401
    """Return both in float32, rounded to the dtype first."""
    x = _tensor(x, dtype).to(torch.float32)
    if isinstance(y, int | float):
        return x, torch.tensor(y, dtype=dtype).item()
    return x, _tensor(y, dtype).to(torch.float32)


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
        up = 1.0 if y >= 1 / _HUGE else _HUGE  # Its reciprocal is in float32 as well.
        rest = x * up - torch.floor(x * up * (1 / (y * up))) * (y * up)
        return torch.where(x >= y * 2.0**24, x * 0, rest * (1 / up))  # NaN for an infinity.
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
    # A product is up to one and a half times as large as its minuend, and the lower half of the
    # divisor's bits is 2 ** 24 times as small.
    is_huge, is_tiny = y > _HUGE, y < _TINY
    scale = torch.where(is_huge, 2.0**-24, torch.where(is_tiny, 2.0**24, 2.0**-4))
    rest, divisor = x * scale, y * scale
    # The sum drops the lower half of the bits; a product by a power of two is exact.
    high = (divisor + divisor * 2.0**_BITS) - divisor * 2.0**_BITS
    low = divisor - high
    for step in reversed(range(steps)):
        power = 2.0 ** (_BITS * step)
        whole = torch.round(rest * (1 / power) / divisor)
        rest = rest - whole * high * power - whole * low * power
    rest = torch.where(rest < 0, rest + divisor, rest)
    up = torch.where(is_huge, 2.0**24, torch.where(is_tiny, 2.0**-24, 2.0**4))
    rest = rest * up
    return torch.where(x < y, x, rest)


DIVISION: Final = Operator(
    "division",
    (*_DIVISIONS, aten.floor_divide.default, aten.floor_divide.Scalar),
    decompose=divide,
    upstream="integer_division",
)
FMOD: Final = Operator("fmod", _FMODS, decompose=fmod)
REMAINDER: Final = Operator("remainder", _REMAINDERS, decompose=remainder)
TRUNC: Final = Operator("trunc", (aten.trunc.default,), decompose=truncate)
