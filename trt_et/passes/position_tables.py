"""Computes functions of positions in dtypes that TensorRT does not have for the largest length.

Angles of ``torch.arange(n, dtype=torch.float64)`` would stay on the CPU. A row depends on its
position alone, so a program stores the rows of the largest ``n`` as a constant, and an engine
takes the first ``n`` of them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch._ops import OpOverload
from torch.fx import Graph, Node, map_arg

from trt_et.graph.insertion import insert_call
from trt_et.graph.operators import MATRIX_PRODUCTS, RESHAPES
from trt_et.graph.symbolic_shapes import dynamic_sizes, shape_range
from trt_et.partition.unsupported_values import DTYPES

aten = torch.ops.aten

# The index of the end among the arguments; they begin at 0.
_RANGES: Final[dict[Any, int]] = {aten.arange.default: 0, aten.arange.start: 1}
_RESHAPES: Final = RESHAPES | {aten.flatten.using_ints}
# A place in their result depends on one place along each dimension that is not summed up.
_BY_PLACE: Final = MATRIX_PRODUCTS | {
    *(aten.to.dtype, aten._to_copy.default, aten.unsqueeze.default, aten.cat.default),
    *(aten.stack.default, aten.outer.default, aten.einsum.default, aten.permute.default),
    *(aten.transpose.int, aten.t.default),
}
_MOST_ELEMENTS: Final = 1 << 22


@dataclass(frozen=True)
class _Table:
    """The values for the largest length, which are along one dimension."""

    node: Node
    dim: int
    length: Node


def insert_tables(graph: Graph, constants: Collection[Node], written: Collection[Node]) -> None:
    """Replace results in TensorRT's dtypes that are computed in others by rows of tables.

    ``written`` are the nodes whose memory a call may write to.
    """
    tables: dict[Node, _Table] = {}
    for node in [node for node in graph.nodes if node not in written]:
        table = _range(node) or _computed(node, tables, constants)
        if table is not None:
            tables[node] = table
    for node, table in tables.items():
        sources = [source for source in node.all_input_nodes if source in tables]
        if _has_dtype(node) and not all(map(_has_dtype, sources)):
            # The node stays: a program's signature has the name of an output.
            node.target, node.kwargs = aten.slice.Tensor, {}
            node.args = (table.node, table.dim, 0, table.length)
    for table in reversed(tables.values()):
        if not table.node.users:
            graph.erase_node(table.node)


def _has_dtype(node: Node) -> bool:
    return node.meta["val"].dtype in DTYPES


def _range(node: Node) -> _Table | None:
    place = _RANGES.get(node.target)
    if place is None or (place and node.args[0] != 0):
        return None
    length = node.args[place]
    if not isinstance(length, Node) or not isinstance(length.meta["val"], torch.SymInt):
        return None
    largest = shape_range(length.meta["val"])[2]
    if not 0 < largest <= _MOST_ELEMENTS:
        return None
    args = (*node.args[:place], largest)
    return _Table(insert_call(node, node.target, *args, **node.kwargs), 0, length)


def _computed(
    node: Node, tables: Mapping[Node, _Table], constants: Collection[Node]
) -> _Table | None:
    sources = [tables[source] for source in node.all_input_nodes if source in tables]
    if not sources:
        return None
    length = sources[0].length
    # The length may be a size in a reshape, but no number in a computation.
    known = {*tables, *constants, *([length] if node.target in _RESHAPES else [])}
    dim = _dim_of_positions(node, length)
    if dim is None or not known.issuperset(node.all_input_nodes):
        return None
    largest = sources[0].node.meta["val"].shape[sources[0].dim]
    if largest * node.meta["val"].select(dim, 0).numel() > _MOST_ELEMENTS:
        return None

    def at_most(each: Node) -> Any:  # noqa: ANN401
        return largest if each is length else tables[each].node if each in tables else each

    args, kwargs = map_arg((node.args, dict(node.kwargs)), at_most)
    return _Table(insert_call(node, node.target, *args, **kwargs), dim, length)


def _dim_of_positions(node: Node, length: Node) -> int | None:
    """Return the dimension of the positions in a result; None if a row depends on others."""
    target, value = node.target, node.meta.get("val")
    if not isinstance(target, OpOverload) or not isinstance(value, torch.Tensor):
        return None
    dynamic = dynamic_sizes(node)
    if len(dynamic) != 1 or dynamic[0][1].node.expr != length.meta["val"].node.expr:
        return None
    ((dim, _),) = dynamic
    if target in _RESHAPES:
        source: Any = node.args[0]
        return dim if source.meta["val"].shape[: dim + 1] == value.shape[: dim + 1] else None
    is_by_place = target in _BY_PLACE or torch.Tag.pointwise in target.tags
    return dim if is_by_place and torch.Tag.nondeterministic_seeded not in target.tags else None
