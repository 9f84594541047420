"""Sizes that may be symbolic, and the ranges that export recorded for them."""

from __future__ import annotations

import torch
from torch.utils._sympy.value_ranges import ValueRanges, bound_sympy

__all__ = ["UnboundedDimension", "shape_range", "size_symbols", "tensor_symbols"]

_UNBOUNDED = 2**31 - 1
_TRACED_MINIMUM = 2


class UnboundedDimension(ValueError):
    """A dimension has no upper bound that an engine or a memory plan could use."""


def shape_range(size: int | torch.SymInt) -> tuple[int, int, int]:
    """Smallest, exported (hinted) and largest value of one dimension.

    Export assumes while it traces that a dynamic size is at least 2, and the Edge dialect keeps
    that as the range even where the caller said 1; what was traced holds for 1 as well.

    Raises:
        UnboundedDimension: It has no usable upper bound, or depends on data.
    """
    if isinstance(size, int):
        return size, size, size
    expression = size.node.expr
    ranges = {
        symbol: ValueRanges(1, known.upper) if known.lower == _TRACED_MINIMUM else known
        for symbol, known in size.node.shape_env.var_to_range.items()
    }
    bounds = bound_sympy(expression, ranges)
    if not size.node.has_hint():
        raise UnboundedDimension(f"its dimension {expression} depends on data")
    if not bounds.upper.is_Integer or int(bounds.upper) >= _UNBOUNDED:
        raise UnboundedDimension(
            f"its dimension {expression} has no upper bound; export with Dim(..., max=N)"
        )
    low, high = int(bounds.lower), int(bounds.upper)
    return low, min(max(int(size.node.hint), low), high), high


def size_symbols(value: object) -> frozenset[str]:
    """The symbols that a symbolic number is computed from; none for anything else."""
    if not isinstance(value, torch.SymInt):
        return frozenset()
    return frozenset(str(symbol) for symbol in value.node.expr.free_symbols)


def tensor_symbols(value: object) -> frozenset[str]:
    """The symbols that are a dimension of a tensor by themselves, and so can be read off it."""
    if not isinstance(value, torch.Tensor):
        return frozenset()
    sizes: tuple[int | torch.SymInt, ...] = tuple(value.shape)
    expressions = [size.node.expr for size in sizes if isinstance(size, torch.SymInt)]
    return frozenset(str(expression) for expression in expressions if expression.is_Symbol)
