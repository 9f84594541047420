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
from trt_et.graph.insertion import insert_call
from trt_et.graph.symbolic_shapes import shown_symbol

_FUNCTIONS: Final[dict[type, Callable[..., Any]]] = {
    sympy.Add: operator.add,
    sympy.Mul: operator.mul,
    FloorDiv: operator.floordiv,
    CleanDiv: operator.floordiv,
    Mod: operator.mod,
    PythonMod: operator.mod,
}


def replace_sizes(graph: Graph, users: set[str]) -> set[str]:
    """Remove the placeholders of a graph that are sizes; return their names.

    ``users`` has the names of the placeholders that are arguments of the delegate.

    Raises:
        BuilderError: A size cannot be computed from the partition's input tensors.
    """
    placeholders = [n for n in graph.nodes if n.op == "placeholder" and n.name in users]
    sizes = [n for n in placeholders if isinstance(n.meta.get("val"), int | torch.SymInt)]
    if not sizes:
        return set()
    sources = _dimensions([n for n in placeholders if n not in sizes])
    # Placeholders come first.
    before = next(n for n in graph.nodes if n.op != "placeholder")
    for node in sizes:
        value = node.meta["val"]
        expression = value.node.expr if isinstance(value, torch.SymInt) else sympy.Integer(value)
        node.replace_all_uses_with(_emit(before, expression, sources, node))
        graph.erase_node(node)
    return {node.name for node in sizes}


@dataclass(frozen=True)
class _Source:
    """A dimension that is a multiple of a symbol, plus a number."""

    tensor: Node
    dim: int
    factor: int
    number: int

    @property
    def is_plain(self) -> bool:
        """Return whether the dimension equals the symbol."""
        return (self.factor, self.number) == (1, 0)


def _dimensions(tensors: list[Node]) -> dict[sympy.Symbol, _Source]:
    """Find a dimension to read each symbol from; prefer one that equals the symbol."""
    sources: dict[sympy.Symbol, _Source] = {}
    for node in tensors:
        value = node.meta.get("val")
        if not isinstance(value, torch.Tensor):
            continue
        for dim, size in enumerate(value.shape):
            shown = shown_symbol(size)
            if shown is None:
                continue
            symbol, factor, number = shown
            source = _Source(node, dim, factor, number)
            if symbol not in sources or (source.is_plain and not sources[symbol].is_plain):
                sources[symbol] = source
    return sources


def _emit(
    before: Node, expression: sympy.Expr, sources: dict[sympy.Symbol, _Source], origin: Node
) -> Any:  # noqa: ANN401
    """Insert nodes that compute an expression; return a number if it is constant."""
    if expression.is_Integer:
        return int(expression)
    if expression.is_Symbol and expression in sources:
        return _read(before, sources[expression])
    function = _FUNCTIONS.get(expression.func)
    if function is None:
        raise BuilderError(
            f"size {origin.name} = {expression} cannot be computed from the partition's inputs; "
            "leave the operator that uses it to the CPU (excluded_ops=...)"
        )
    parts = [_emit(before, part, sources, origin) for part in expression.args]
    return reduce(lambda a, b: _combine(before, function, a, b), parts)


def _read(before: Node, source: _Source) -> Node:
    node = insert_call(before, torch.ops.aten.sym_size.int, source.tensor, source.dim)
    if source.is_plain:
        return node
    if source.number:
        node = insert_call(before, operator.add, node, -source.number)
    return insert_call(before, operator.floordiv, node, source.factor)


def _combine(before: Node, function: Callable[..., Any], a: Any, b: Any) -> Any:  # noqa: ANN401
    if isinstance(a, int) and isinstance(b, int):
        return function(a, b)
    return insert_call(before, function, a, b)
