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
from torch.fx import Node

from trt_et.conversion.operator import Operator
from trt_et.graph.insertion import insert_call

__all__ = ["DIVISION", "FLOOR_DIVISION", "FMOD", "REMAINDER"]

aten = torch.ops.aten

_DIVISIONS: Final = (aten.div.Tensor_mode, aten.div.Scalar_mode)
_FMODS: Final = (aten.fmod.Tensor, aten.fmod.Scalar)
_REMAINDERS: Final = (
    aten.remainder.Tensor,
    aten.remainder.Scalar,
    aten.remainder.Scalar_Tensor,
)

# A quotient that is rounded to half precision may be rounded up to the next integer.
_HALF_PRECISION: Final = (torch.float16, torch.bfloat16)


def divide_exactly(node: Node) -> Node | None:
    """Return truncated quotients and integer remainders by divisions that TensorRT computes right.

    Remainders of half precision are computed in float32. The operands must be of the result's dtype
    (``type_promotion.py``).
    """
    is_integer = not node.meta["val"].dtype.is_floating_point
    first, second = (*node.args, None, None)[:2]
    if node.target in _DIVISIONS:
        if node.kwargs.get("rounding_mode") != "trunc":
            return None
        return _truncated(node, first, second, is_integer)
    if node.target is aten.trunc.default:
        return None if is_integer else _cut_off(node, first)
    if is_integer:
        divide = _truncated if node.target in _FMODS else _rounded_down
        return _rest(node, first, divide(node, first, second, is_integer), second)
    return _in_float32(node) if node.meta["val"].dtype in _HALF_PRECISION else None


def _in_float32(node: Node) -> Node:
    dtype = node.meta["val"].dtype
    wide = (
        insert_call(node, aten._to_copy.default, argument, dtype=torch.float32)
        if isinstance(argument, Node)
        else torch.tensor(argument, dtype=dtype).item()  # Torch also rounds numbers.
        for argument in node.args
    )
    result = insert_call(node, node.target, *wide)
    return insert_call(node, aten._to_copy.default, result, dtype=dtype)


def _call(before: Node, operator: Any, first: Any, second: Any) -> Node:  # noqa: ANN401
    """Insert a call of a binary operator, one of whose operands may be a number."""
    if not isinstance(first, Node):
        value = second.meta["val"]
        first = insert_call(before, aten.full.default, [], first, dtype=value.dtype)
    overload = operator.Tensor if isinstance(second, Node) else operator.Scalar
    return insert_call(before, overload, first, second)


def _rounded_down(node: Node, first: Any, second: Any, _: bool = True) -> Node:  # noqa: ANN401
    if isinstance(second, Node):
        if not isinstance(first, Node):
            dtype = second.meta["val"].dtype
            first = insert_call(node, aten.full.default, [], first, dtype=dtype)
        return insert_call(node, aten.div.Tensor_mode, first, second, rounding_mode="floor")
    return insert_call(node, aten.div.Scalar_mode, first, second, rounding_mode="floor")


def _rest(node: Node, first: Any, quotient: Node, second: Any) -> Node:  # noqa: ANN401
    return _call(node, aten.sub, first, _call(node, aten.mul, quotient, second))


def _truncated(node: Node, first: Any, second: Any, is_integer: bool) -> Node:  # noqa: ANN401
    if not is_integer:
        return _cut_off(node, _call(node, aten.div, first, second))
    # The quotient rounded down is one too low if it is negative and leaves a rest.
    down = _rounded_down(node, first, second)
    rest = _rest(node, first, down, second)
    # The rest has the divisor's sign.
    differs = insert_call(
        node,
        aten.bitwise_xor.Tensor,
        _call(node, aten.lt, first, 0),
        insert_call(node, aten.lt.Scalar, rest, 0),
    )
    low = insert_call(
        node, aten.bitwise_and.Tensor, differs, insert_call(node, aten.ne.Scalar, rest, 0)
    )
    one = insert_call(node, aten._to_copy.default, low, dtype=down.meta["val"].dtype)
    return insert_call(node, aten.add.Tensor, down, one)


def _cut_off(node: Node, number: Any) -> Node:  # noqa: ANN401
    up, down = (insert_call(node, op.default, number) for op in (aten.ceil, aten.floor))
    negative = insert_call(node, aten.lt.Scalar, number, 0)
    return insert_call(node, aten.where.self, negative, up, down)


_BITS: Final = 12
# The exponent that all finite numbers are below.
_LARGEST: Final = {torch.float16: 16, torch.bfloat16: 128, torch.float32: 128}
# Quotients of two tensors are exact up to 2 ** (12 * steps): all of half precision, and 2 ** 132.
_STEPS: Final = {torch.float16: 4, torch.bfloat16: 11, torch.float32: 11}
_HUGE: Final = 2.0**100
_TINY: Final = 2.0**-60


def fmod(x: Tensor, y: Any) -> Any:  # noqa: ANN401
    """Compute ``aten.fmod``, which has the sign of ``x``.

    Args:
        x: The dividend, a tensor.
        y: The divisor, a tensor or a number.

    Returns:
        The remainder; ``NotImplemented`` for integers, which ``divide_exactly`` takes, and
        for float64, which TensorRT does not have.
    """
    dtype = torch.result_type(x, y)
    if dtype not in _LARGEST:
        return NotImplemented
    return _fmod(*_operands(x, y, dtype), dtype).to(dtype)


def float_remainder(x: Any, y: Any) -> Any:  # noqa: ANN401
    """Compute ``aten.remainder``, which has the sign of ``y``; as ``fmod`` does."""
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


def floor_division(x: Any, y: Any, *, rounding_mode: str | None = "floor") -> Any:  # noqa: ANN401
    """Compute ``aten.floor_divide``, and ``aten.div`` rounded down, from the exact remainder.

    Returns:
        The quotient; ``NotImplemented`` for other roundings and dtypes.
    """
    dtype = torch.result_type(x, y)
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
        up = 1.0 if y >= 1 / _HUGE else _HUGE  # The reciprocal is a number of float32, too.
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
    (*_DIVISIONS, aten.trunc.default, *_FMODS, *_REMAINDERS),
    rewrite=divide_exactly,
    upstream="integer_division",
)
FMOD: Final = Operator("fmod", _FMODS, decompose=fmod)
FLOOR_DIVISION: Final = Operator(
    "floor_division",
    (*_DIVISIONS, aten.floor_divide.default, aten.floor_divide.Scalar),
    decompose=floor_division,
)
REMAINDER: Final = Operator("remainder", _REMAINDERS, decompose=float_remainder)
