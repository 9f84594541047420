"""Sizes that can be read off tensors, or computed from what their shapes show."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final

import sympy
import torch
from torch.fx import Node
from torch.utils._sympy.functions import CleanDiv, FloorDiv, Mod, PythonMod

from trt_et.graph.insertion import insert_call
from trt_et.graph.symbolic_shapes import dynamic_sizes, shown_symbol

_FUNCTIONS: Final[dict[type, Callable[..., Any]]] = {
    sympy.Add: operator.add,
    sympy.Mul: operator.mul,
    FloorDiv: operator.floordiv,
    CleanDiv: operator.floordiv,
    Mod: operator.mod,
    PythonMod: operator.mod,
}


@dataclass(frozen=True)
class _Source:
    """A dimension that is a multiple of an expression, plus a number."""

    tensor: Node
    dim: int
    factor: int = 1
    number: int = 0


class ShownSizes:
    """The sizes that the shapes of some tensors show.

    A dimension shows its expression, and its symbol if it is a multiple of one, plus a number.
    """

    def __init__(self, tensors: Iterable[Node]) -> None:
        self._sources: dict[sympy.Expr, _Source] = {}
        lines: dict[sympy.Expr, _Source] = {}
        for node in tensors:
            for dim, size in dynamic_sizes(node):
                self._sources.setdefault(size.node.expr, _Source(node, dim))
                if (line := shown_symbol(size)) is not None:
                    symbol, factor, number = line
                    lines.setdefault(symbol, _Source(node, dim, factor, number))
        self._sources = lines | self._sources

    def show(self, size: object) -> bool:
        """Return whether a size is a number, or can be computed from the shapes."""
        return not isinstance(size, torch.SymInt) or self._show(size.node.expr)

    def _show(self, expression: sympy.Expr) -> bool:
        if expression.is_Integer or expression in self._sources:
            return True
        function, parts = _parts(expression)
        return function is not None and all(map(self._show, parts))

    def insert(self, before: Node, size: int | torch.SymInt) -> int | Node:
        """Insert nodes that compute a size that the shapes show; return a number as it is."""
        return self._insert(before, size.node.expr) if isinstance(size, torch.SymInt) else size

    def _insert(self, before: Node, expression: sympy.Expr) -> Any:  # noqa: ANN401
        if expression.is_Integer:
            return int(expression)
        if expression in self._sources:
            return _read(before, self._sources[expression])
        function, parts = _parts(expression)
        assert function is not None, expression
        numbers = {part: self._insert(before, part) for part in parts}
        return reduce(
            lambda a, b: _combine(before, function, a, b), [numbers[part] for part in parts]
        )


def _parts(
    expression: sympy.Expr,
) -> tuple[Callable[..., Any] | None, tuple[sympy.Expr, ...]]:
    """Return the function that an expression calls, None if it is unknown, and its arguments."""
    if expression.is_Pow and expression.exp.is_Integer and expression.exp > 1:
        return operator.mul, (expression.base,) * int(expression.exp)
    return _FUNCTIONS.get(expression.func), expression.args


def _read(before: Node, source: _Source) -> Node:
    node = insert_call(before, torch.ops.aten.sym_size.int, source.tensor, source.dim)
    if source.number:
        node = insert_call(before, operator.add, node, -source.number)
    return (
        node if source.factor == 1 else insert_call(before, operator.floordiv, node, source.factor)
    )


def _combine(before: Node, function: Callable[..., Any], a: Any, b: Any) -> Any:  # noqa: ANN401
    if isinstance(a, int) and isinstance(b, int):
        return function(a, b)
    return insert_call(before, function, a, b)
