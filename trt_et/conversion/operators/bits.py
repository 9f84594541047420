"""Bits of integers, by divisions: TensorRT has bit operators for booleans alone.

A shift to the right is a division that is rounded down, in two's complement too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import torch
from torch import Tensor
from torch.fx import Node

from trt_et.conversion.operator import Operator
from trt_et.graph.operators import INTEGERS

aten = torch.ops.aten


def bitwise_and(x: Any, y: Any) -> Any:  # noqa: ANN401
    """Compute ``aten.bitwise_and`` of integers; ``NotImplemented`` for booleans."""
    operands = _operands(x, y)
    return NotImplemented if operands is None else _common(*operands)


def bitwise_or(x: Any, y: Any) -> Any:  # noqa: ANN401
    """Compute ``aten.bitwise_or`` as ``bitwise_and``: add the bits that are only in ``y``."""
    operands = _operands(x, y)
    if operands is None:
        return NotImplemented
    x, y = operands
    return x + (y - _common(x, y))


def bitwise_xor(x: Any, y: Any) -> Any:  # noqa: ANN401
    """Compute ``aten.bitwise_xor`` as ``bitwise_and``: add the bits that only one has."""
    operands = _operands(x, y)
    if operands is None:
        return NotImplemented
    x, y = operands
    common = _common(x, y)
    return (x - common) + (y - common)


def bitwise_not(x: Tensor) -> Any:  # noqa: ANN401
    """Compute ``aten.bitwise_not`` of integers in two's complement."""
    return -1 - x if x.dtype in INTEGERS else NotImplemented


def of_two_tensors(node: Node) -> str | None:
    """Refuse two tensors of integers: each bit would be a tensor."""
    if node.meta["val"].dtype in INTEGERS and all(isinstance(a, Node) for a in node.args):
        return "TensorRT has bit operators for booleans alone; one side may be a number"
    return None


def _operands(x: Any, y: Any) -> tuple[Tensor, int] | None:  # noqa: ANN401
    """Return a tensor and a number in the dtype of the result; None if it has no integers."""
    dtype = torch.result_type(x, y)
    if dtype not in INTEGERS:
        return None
    bits = torch.iinfo(dtype).bits
    y %= 1 << bits
    return x.to(dtype), y - (1 << bits) if y >> (bits - 1) else y


def _common(x: Tensor, number: int) -> Tensor:
    """Return the bits that are in both."""
    if number == 0:
        return x * 0
    parts = [_run(x, *run) for run in _runs(number, torch.iinfo(x.dtype).bits)]
    return sum(parts[1:], parts[0])


def _runs(number: int, bits: int) -> Iterator[tuple[int, int | None]]:
    """Yield the first bit of each run of ones and the first after it, None for the sign's."""
    first = None
    for bit in range(bits + 1):
        is_one = bit < bits and bool(number >> bit & 1)
        if is_one and first is None:
            first = bit
        elif not is_one and first is not None:
            yield first, bit if bit < bits else None
            first = None


def _run(x: Tensor, first: int, end: int | None) -> Tensor:
    """Return the bits from ``first`` up to ``end``, at their places."""
    upper = _multiple(x, first)
    return upper if end is None else upper - _multiple(x, end)


def _multiple(x: Tensor, bit: int) -> Tensor:
    """Clear the bits below one."""
    if bit == 0:
        return x
    if bit == torch.iinfo(x.dtype).bits - 1:  # 2 ** bit is beyond the dtype.
        return torch.where(x < 0, torch.iinfo(x.dtype).min, 0).to(x.dtype)
    return torch.div(x, 1 << bit, rounding_mode="floor") * (1 << bit)


BITWISE_AND: Final = Operator(
    "bitwise_and",
    (aten.bitwise_and.Tensor, aten.bitwise_and.Scalar),
    unsupported=of_two_tensors,
    decompose=bitwise_and,
)
BITWISE_OR: Final = Operator(
    "bitwise_or",
    (aten.bitwise_or.Tensor, aten.bitwise_or.Scalar),
    unsupported=of_two_tensors,
    decompose=bitwise_or,
)
BITWISE_XOR: Final = Operator(
    "bitwise_xor",
    (aten.bitwise_xor.Tensor, aten.bitwise_xor.Scalar),
    unsupported=of_two_tensors,
    decompose=bitwise_xor,
)
BITWISE_NOT: Final = Operator("bitwise_not", (aten.bitwise_not.default,), decompose=bitwise_not)
