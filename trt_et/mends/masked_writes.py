"""Replaces writes by a mask by ``where``.

``x[mask] = value`` and ``x[mask] += value`` are an ``index_put``, the second with an ``index``
whose result has as many rows as the mask has ones: sizes that depend on data stay on the CPU. The
same values are computed for every place instead, and ``where`` takes those that the mask selects.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import torch
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.fx import Graph, Node
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from trt_et.graph.arguments import named_arguments
from trt_et.graph.insertion import insert_call
from trt_et.graph.subgraphs import edited, nodes_of

aten = torch.ops.aten

_PUTS: Final = (aten.index_put.default, aten.index_put_.default)
# An integer has no quotient by 0, which the mask may leave out.
_DIVISIONS: Final = (aten.div, aten.floor_divide, aten.remainder, aten.fmod)


def writes_by_mask(node: Node) -> bool:
    """Return whether a call writes to the places of one mask."""
    return node.target in _PUTS and _mask_of(node.args[1]) is not None


def select_by_mask(program: ExportedProgram) -> ExportedProgram:
    """Replace each ``index_put`` with one mask by ``where``, if all places have a value."""
    if not any(map(writes_by_mask, nodes_of(program))):
        return program
    return edited(program, _select, branches=True)


def _select(graph: Graph) -> None:
    for node in graph.find_nodes(op="call_function", target=aten.index_put.default):
        if writes_by_mask(node) and (new := _where(node)) is not None:
            name = node.name
            new.meta = {**node.meta, "val": new.meta["val"]}
            node.replace_all_uses_with(new)
            graph.erase_node(node)
            new.name = name  # It may be an output's.


def _mask_of(indices: Any) -> tuple[Node, int] | None:  # noqa: ANN401
    """Return the mask and its dimension, if it is the only index."""
    given = [(index, dim) for dim, index in enumerate(indices) if index is not None]
    is_mask = len(given) == 1 and given[0][0].meta["val"].dtype is torch.bool
    return given[0] if is_mask and given[0][0].meta["val"].dim() else None


def _where(node: Node) -> Node | None:
    arguments = named_arguments(node)
    x, values = arguments["self"], arguments["values"]
    found = _mask_of(arguments["indices"])
    assert found is not None
    mask, dim = found
    every = _Everywhere(node, mask, dim, x.meta["val"].dim()).values(values)
    if every is None:
        return None
    if arguments["accumulate"]:
        every = insert_call(node, aten.add.Tensor, x, every)
    for _ in range(x.meta["val"].dim() - dim - mask.meta["val"].dim()):
        mask = insert_call(node, aten.unsqueeze.default, mask, -1)
    return insert_call(node, aten.where.self, mask, every, x)


@dataclass(frozen=True)
class _Everywhere:
    """Values for every place of a tensor, from values for the places of a mask.

    Attributes:
        before: New calls are inserted before this node.
        mask: The mask.
        dim: The first dimension that it indexes.
        rank: The number of the tensor's dimensions.
    """

    before: Node
    mask: Node
    dim: int
    rank: int

    @property
    def _after(self) -> int:
        """Return the number of dimensions after the mask's."""
        return self.rank - self.dim - self._masked

    @property
    def _masked(self) -> int:
        return int(self.mask.meta["val"].dim())

    def values(self, node: Any) -> Any:  # noqa: ANN401
        """Return a node that broadcasts to the tensor's shape; None if there is none."""
        if not isinstance(node, Node) or not isinstance(node.meta.get("val"), torch.Tensor):
            return node if isinstance(node, int | float | bool) else None
        if not _depends_on_data(node):
            return self._spread(node)
        if node.target is aten.index.Tensor:
            return self._source(node)
        if not self._keeps_places(node):
            return None
        new = {each: self.values(each) for each in node.all_input_nodes if self._is_row(node, each)}
        if any(value is None for value in new.values()):
            return None
        args, kwargs = torch.fx.map_arg((node.args, node.kwargs), lambda n: new.get(n, n))
        new_call = insert_call(self.before, node.target, *args, **kwargs)
        new_call.meta = {**node.meta, "val": new_call.meta["val"]}
        return new_call

    def _is_row(self, node: Node, argument: Node) -> bool:
        return node.target is not aten.linear.default or argument is node.args[0]

    def _keeps_places(self, node: Node) -> bool:
        """Return whether each row of a result follows from the same row of its arguments."""
        target = node.target
        if target is aten.linear.default:
            return self._after > 0
        if not isinstance(target, OpOverload) or target._schema.is_mutable:
            return False
        divides = target.overloadpacket in _DIVISIONS and not node.meta["val"].is_floating_point()
        is_copy = target in (aten._to_copy.default, aten.clone.default, aten.to.dtype)
        return is_copy or (torch.Tag.pointwise in target.tags and not divides)

    def _source(self, node: Node) -> Node | None:
        """Return the tensor that is read by the same mask."""
        source: Any = node.args[0]
        found = _mask_of(node.args[1])
        is_same = found is not None and found[1] == self.dim and _is_same(found[0], self.mask)
        return source if is_same and source.meta["val"].dim() == self.rank else None

    def _spread(self, node: Node) -> Node | None:
        """Return values that are equal for all rows, with the mask's dimensions."""
        shape = node.meta["val"].shape
        at = len(shape) - self._after - 1
        if at < 0:
            return node
        if not isinstance(shape[at], int) or shape[at] != 1:
            return None  # One row for each place of the mask.
        if at == 0:
            return insert_call(self.before, aten.squeeze.dim, node, 0)
        for _ in range(self._masked - 1):
            node = insert_call(self.before, aten.unsqueeze.default, node, at)
        return node


def _depends_on_data(node: Node) -> bool:
    return any(
        isinstance(size, torch.SymInt) and free_unbacked_symbols(size)
        for size in node.meta["val"].shape
    )


def _is_same(one: object, other: object) -> bool:
    """Return whether two values are computed in the same way; the graph is functional."""
    if not isinstance(one, Node) or not isinstance(other, Node):
        return type(one) is type(other) and bool(one == other)
    if one is other:
        return True
    parts = [[*node.args, *node.kwargs.items()] for node in (one, other)]
    return (
        one.op == other.op == "call_function"
        and one.target is other.target
        and isinstance(one.target, OpOverload)
        and torch.Tag.nondeterministic_seeded not in one.target.tags
        and len(parts[0]) == len(parts[1])
        and all(_is_same(*pair) for pair in zip(*parts, strict=True))
    )
