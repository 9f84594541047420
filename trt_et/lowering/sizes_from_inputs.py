"""Reads the sizes that a partition takes as numbers off its input tensors instead.

In a program with dynamic shapes a delegate is handed symbolic sizes next to its tensors. An engine
takes tensors only, and every size that it needs is a dimension of one of them, or is computed from
such dimensions.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final

import sympy
import torch
from torch.fx import Graph, Node
from torch.utils._sympy.functions import CleanDiv, FloorDiv, Mod, PythonMod

from trt_et.errors import BuilderError
from trt_et.graph.symbolic_shapes import shown_symbol

__all__ = ["replace_sizes"]

_FUNCTIONS: Final[dict[type, Callable[..., Any]]] = {
    sympy.Add: operator.add,
    sympy.Mul: operator.mul,
    FloorDiv: operator.floordiv,
    CleanDiv: operator.floordiv,
    Mod: operator.mod,
    PythonMod: operator.mod,
}


def replace_sizes(graph: Graph, users: set[str]) -> set[str]:
    """Remove the placeholders of a graph that are sizes.

    Args:
        graph: A partition in plain ATen; changed in place.
        users: Names of the placeholders that are arguments of the delegate.

    Returns:
        The names of the placeholders that were removed.

    Raises:
        BuilderError: A size cannot be computed from the partition's input tensors.
    """
    placeholders = [n for n in graph.nodes if n.op == "placeholder" and n.name in users]
    sizes = [n for n in placeholders if isinstance(n.meta.get("val"), int | torch.SymInt)]
    if not sizes:
        return set()
    sources = _dimensions([n for n in placeholders if n not in sizes])
    last = next(n for n in reversed(graph.nodes) if n.op == "placeholder")
    with graph.inserting_after(last):
        # Placeholders come first; insert new nodes after the last one, in order.
        anchor = graph.call_function(operator.add, (0, 0))
    with graph.inserting_before(anchor):
        for node in sizes:
            value = node.meta["val"]
            expression = (
                value.node.expr if isinstance(value, torch.SymInt) else sympy.Integer(value)
            )
            new = _emit(graph, expression, sources, node)
            node.replace_all_uses_with(new)
    graph.erase_node(anchor)
    for node in sizes:
        graph.erase_node(node)
    return {node.name for node in sizes}


@dataclass(frozen=True)
class _Source:
    """A dimension that is a multiple of a symbol, plus a number."""

    tensor: Node
    dim: int
    size: torch.SymInt
    factor: int
    number: int

    @property
    def is_plain(self) -> bool:
        """Return whether the dimension equals the symbol."""
        return (self.factor, self.number) == (1, 0)


def _dimensions(tensors: list[Node]) -> dict[sympy.Symbol, _Source]:
    """Find a dimension to read each symbol from; prefer one that equals the symbol."""
    found: dict[sympy.Symbol, _Source] = {}
    for node in tensors:
        value = node.meta.get("val")
        if not isinstance(value, torch.Tensor):
            continue
        for dim, size in enumerate(value.shape):
            shown = shown_symbol(size)
            if shown is None or not isinstance(size, torch.SymInt):
                continue
            symbol, factor, number = shown
            source = _Source(node, dim, size, factor, number)
            if symbol not in found or (source.is_plain and not found[symbol].is_plain):
                found[symbol] = source
    return found


def _emit(
    graph: Graph,
    expression: sympy.Expr,
    sources: dict[sympy.Symbol, _Source],
    origin: Node,
) -> Node | int:
    """Insert nodes that compute an expression; return a number if it is constant."""
    if expression.is_Integer:
        return int(expression)
    if expression.is_Symbol and expression in sources:
        return _read(graph, sources[expression])
    function = _FUNCTIONS.get(expression.func)
    if function is None:
        raise BuilderError(
            f"size {origin.name} = {expression} cannot be computed from the partition's inputs; "
            "leave the operator that uses it to the CPU (excluded_ops=...)"
        )
    parts = [_emit(graph, part, sources, origin) for part in expression.args]
    return reduce(lambda a, b: _combine(graph, function, a, b), parts)


def _read(graph: Graph, source: _Source) -> Node | int:
    node = graph.call_function(torch.ops.aten.sym_size.int, (source.tensor, source.dim))
    node.meta["val"] = source.size
    if source.is_plain:
        return node
    multiple = _combine(graph, operator.add, node, -source.number) if source.number else node
    return _combine(graph, operator.floordiv, multiple, source.factor)


def _combine(
    graph: Graph, function: Callable[..., Any], a: Node | int, b: Node | int
) -> Node | int:
    if isinstance(a, int) and isinstance(b, int):
        return int(function(a, b))
    node = graph.call_function(function, (a, b))
    values = [part.meta["val"] if isinstance(part, Node) else part for part in (a, b)]
    node.meta["val"] = function(*values)
    return node
