"""Sizes that may be symbolic, and the ranges that export recorded for them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Final

import sympy
import torch
from torch.utils._sympy.value_ranges import ValueRanges, bound_sympy

__all__ = ["UnboundedDimension", "shape_range", "shown_symbol", "size_symbols", "tensor_symbols"]

_UNBOUNDED = 2**31 - 1
_TRACED_MINIMUM = 2
# As torch.export names where a symbol comes from.
_SOURCE: Final = re.compile(r"L\['(?P<input>\w+)'\](?P<path>.*)\.size\(\)\[(?P<dim>\d+)\]")


class UnboundedDimension(ValueError):
    """A dimension has no upper bound that an engine or a memory plan could use."""


def shape_range(
    size: int | torch.SymInt, symbols: Mapping[str, tuple[int, int, int]] | None = None
) -> tuple[int, int, int]:
    """Smallest, best tuned (as exported, unless a profile says otherwise) and largest size.

    Args:
        size: A dimension.
        symbols: Ranges to use instead of the recorded ones: smallest, best tuned, largest.

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
    best = int(size.node.hint) if size.node.has_hint() else None
    chosen = {
        symbol: (symbols or {})[str(symbol)]
        for symbol in expression.free_symbols
        if str(symbol) in (symbols or {})
    }
    if chosen:
        ranges |= {symbol: ValueRanges(low, high) for symbol, (low, _, high) in chosen.items()}
        known = dict(size.node.shape_env.backed_var_to_val)
        known |= {symbol: middle for symbol, (_, middle, _) in chosen.items()}
        best = int(expression.subs(known))
    bounds = bound_sympy(expression, ranges)
    if best is None:
        raise UnboundedDimension(f"its dimension {expression} depends on data")
    if not bounds.upper.is_Integer or int(bounds.upper) >= _UNBOUNDED:
        raise UnboundedDimension(
            f"its dimension {expression}{_origin(size)} has no upper bound; "
            "export with Dim(..., max=N)"
        )
    low, high = int(bounds.lower), int(bounds.upper)
    return low, min(max(best, low), high), high


def _origin(size: torch.SymInt) -> str:
    """Which inputs' dimensions a size is computed from, in words; empty where that is not known."""
    known = size.node.shape_env.var_to_sources
    sources = [known[symbol][0] for symbol in size.node.expr.free_symbols if known.get(symbol)]
    found = [_SOURCE.fullmatch(str(source.name)) for source in sources]
    dimensions = sorted(f"dimension {f['dim']} of {f['input']}{f['path']}" for f in found if f)
    return f" ({', '.join(dimensions)})" if dimensions else ""


def size_symbols(value: object) -> frozenset[str]:
    """The symbols that a symbolic number is computed from; none for anything else."""
    if not isinstance(value, torch.SymInt):
        return frozenset()
    return frozenset(str(symbol) for symbol in value.node.expr.free_symbols)


def tensor_symbols(value: object) -> frozenset[str]:
    """The symbols that a dimension of a tensor shows, and that so can be read off it."""
    if not isinstance(value, torch.Tensor):
        return frozenset()
    shown = [shown_symbol(size) for size in value.shape]
    return frozenset(str(found[0]) for found in shown if found is not None)


def shown_symbol(size: int | torch.SymInt) -> tuple[sympy.Symbol, int, int] | None:
    """The symbol that a size is a multiple of, plus a number; the factor; and that number.

    None where the size says less, or is no symbolic one.
    """
    return _line(size.node.expr) if isinstance(size, torch.SymInt) else None


@cache
def _line(expression: sympy.Expr) -> tuple[sympy.Symbol, int, int] | None:
    if len(expression.free_symbols) != 1:
        return None
    (symbol,) = expression.free_symbols
    if not expression.is_polynomial(symbol) or sympy.degree(expression, symbol) != 1:
        return None
    factor, number = sympy.Poly(expression, symbol).all_coeffs()
    if not factor.is_Integer or not number.is_Integer or factor < 1:
        return None
    return symbol, int(factor), int(number)
