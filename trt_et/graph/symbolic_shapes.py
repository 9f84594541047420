"""Read symbolic sizes and the ranges that export recorded for them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from textwrap import shorten
from typing import Any, Final, cast

import sympy
import torch
from torch.fx import Node
from torch.fx.experimental.symbolic_shapes import (
    ShapeEnv,
    free_unbacked_symbols,
    statically_known_true,
)
from torch.utils._pytree import tree_leaves
from torch.utils._sympy.value_ranges import ValueRanges, bound_sympy

_UNBOUNDED = 2**31 - 1
_TRACED_MINIMUM = 2
_LONGEST = 80  # Characters of an expression in a message.
# torch.export's name for the source of a symbol.
_SOURCE: Final = re.compile(r"L\['(?P<input>\w+)'\](?P<path>.*)\.size\(\)\[(?P<dim>\d+)\]")


class UnboundedDimension(ValueError):
    """A dimension has no upper bound that an engine or a memory plan could use."""


def shape_range(
    size: int | torch.SymInt, symbols: Mapping[str, tuple[int, int, int]] | None = None
) -> tuple[int, int, int]:
    """Return the smallest, the best tuned and the largest size.

    The best tuned size is the exported one, unless a profile sets another.

    Args:
        size: A dimension.
        symbols: Ranges to use instead of the recorded ones: smallest, best tuned, largest.

    Export assumes during tracing that a dynamic size is at least 2, and the Edge dialect keeps
    that range even if the caller set 1. The traced program is valid for 1 as well.

    Raises:
        UnboundedDimension: It has no usable upper bound, or depends on data.
    """
    if isinstance(size, int):
        return size, size, size
    expression = size.node.expr
    ranges = _ranges(size)
    best = cast(int, size.node.hint) if size.node.has_hint() else None
    chosen = {
        symbol: (symbols or {})[str(symbol)]
        for symbol in expression.free_symbols
        if str(symbol) in (symbols or {})
    }
    if chosen:
        ranges |= {symbol: ValueRanges(low, high) for symbol, (low, _, high) in chosen.items()}
        known = dict(shape_env_of(size).backed_var_to_val)
        known |= {symbol: middle for symbol, (_, middle, _) in chosen.items()}
        best = int(expression.subs(known))
    bounds = bound_sympy(expression, ranges)
    if best is None:
        if free_unbacked_symbols(size):
            raise UnboundedDimension(f"its dimension {expression} depends on data")
        raise UnboundedDimension(f"its dimension {expression}{_origin(size)} has no example size")
    if not bounds.upper.is_Integer or int(bounds.upper) >= _UNBOUNDED:
        shown = f"{shorten(str(expression), _LONGEST)}{_origin(size)}"
        if all(ranges[symbol].upper.is_Integer for symbol in expression.free_symbols):
            raise UnboundedDimension(f"torch finds no upper bound of its dimension {shown}")
        raise UnboundedDimension(
            f"its dimension {shown} has no upper bound; export with Dim(..., max=N)"
        )
    if not bounds.lower.is_Integer:
        raise UnboundedDimension(f"its size {expression}{_origin(size)} has no lower bound")
    # torch bounds each term alone: -n - -n // 8 * 8 would go below zero.
    low, high = max(int(bounds.lower), 0), max(int(bounds.upper), 0)
    return low, min(max(best, low), high), high


def shape_env_of(size: torch.SymInt | torch.SymFloat | torch.SymBool) -> ShapeEnv:
    """Return the environment of a size's symbols; each traced size has one."""
    environment = size.node.shape_env
    assert environment is not None
    return environment


def may_be_negative(size: torch.SymInt) -> bool:
    """Return whether a number computed from sizes may be below zero."""
    return not bound_sympy(size.node.expr, _ranges(size)).lower >= 0


def _ranges(size: torch.SymInt) -> dict[sympy.Symbol, Any]:
    """Return the recorded range of every symbol, from 1 instead of the traced minimum."""
    return {
        symbol: ValueRanges(1, known.upper) if known.lower == _TRACED_MINIMUM else known
        for symbol, known in shape_env_of(size).var_to_range.items()
    }


def _origin(size: torch.SymInt) -> str:
    """Describe the inputs' dimensions that a size is computed from; empty if unknown."""
    known = shape_env_of(size).var_to_sources
    sources = [known[symbol][0] for symbol in size.node.expr.free_symbols if known.get(symbol)]
    matches = [_SOURCE.fullmatch(str(source.name)) for source in sources]
    dimensions = sorted(f"dimension {f['dim']} of {f['input']}{f['path']}" for f in matches if f)
    return f" ({', '.join(dimensions)})" if dimensions else ""


def same_sizes(sizes: Sequence[Any], others: Sequence[Any]) -> bool:
    """Check whether two shapes surely are the same, without an assumption about any size."""
    return len(sizes) == len(others) and all(
        statically_known_true(one == other) for one, other in zip(sizes, others, strict=True)
    )


def of_example(number: int | torch.SymInt) -> int | None:
    """Return the value that a number has for the exported example; None if it has none."""
    return number if isinstance(number, int) else cast(int | None, number.node.hint)


def is_static(*nodes: object) -> bool:
    """Check whether all sizes of the tensors among some nodes are numbers."""
    values = tree_leaves([node.meta.get("val") for node in nodes if isinstance(node, Node)])
    shapes = [value.shape for value in values if isinstance(value, torch.Tensor)]
    return all(isinstance(size, int) for shape in shapes for size in shape)


def shown_symbol(size: int | torch.SymInt) -> tuple[sympy.Symbol, int, int] | None:
    """Return symbol, factor and number of a size of the form ``factor * symbol + number``.

    None for any other size.
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


def dynamic_sizes(node: Node) -> list[tuple[int, torch.SymInt]]:
    """Return the dynamic sizes of a node's tensor, with the dimension; none if it has no tensor."""
    value = node.meta.get("val")
    shape: Sequence[Any] = value.shape if isinstance(value, torch.Tensor) else ()
    return [(dim, size) for dim, size in enumerate(shape) if isinstance(size, torch.SymInt)]


def size_names(inputs: Iterable[Node]) -> dict[str, dict[int, str]]:
    """Name the dynamic sizes of some inputs, by input and dimension; equal sizes have one name."""
    names: dict[Any, str] = {}
    return {
        node.name: {
            dim: names.setdefault(size.node.expr, f"size{len(names)}")
            for dim, size in dynamic_sizes(node)
        }
        for node in inputs
    }
