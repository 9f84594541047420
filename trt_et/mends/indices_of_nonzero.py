"""Computes the indices of ``nonzero`` from those of one dimension.

torch's ``nonzero`` returns indices with the strides (1, n). ExecuTorch 1.5 plans a tensor with
these strides, its kernel ignores them and writes row by row: all readers see wrong indices, or fail
(docs/internals/upstream/nonzero.md). The two layouts of a tensor of one column are the same.
"""

from __future__ import annotations

import operator
from functools import partial, reduce
from typing import Any, Final

import torch
from torch.export import ExportedProgram
from torch.fx import Graph, Node
from torch.fx.experimental.symbolic_shapes import CallMethodKey, statically_known_true
from torch.utils._pytree import SequenceKey

from trt_et.graph.insertion import insert_call, insert_size
from trt_et.graph.subgraphs import edited, nodes_of

aten = torch.ops.aten

_AS_COLUMNS: Final = (aten.nonzero.default, aten.argwhere.default)
_TRANSPOSES: Final = (
    aten.t.default,
    aten.transpose.int,
    aten.permute.default,
    aten.numpy_T.default,
)
_AS_LIST: Final = (aten.nonzero_numpy.default, aten.where.default)


def lay_out_indices(program: ExportedProgram) -> ExportedProgram:
    """Replace each ``nonzero`` and its variants by operators whose results are contiguous."""
    if not any(map(_finds_indices, nodes_of(program))):
        return program
    return edited(program, _use_one_dimension, branches=True)


def _finds_indices(node: Node) -> bool:
    if node.target not in (*_AS_COLUMNS, *_AS_LIST):
        return False
    source: Any = node.args[0]
    return bool(source.meta["val"].dim())


def _use_one_dimension(graph: Graph) -> None:
    rows: dict[Node, Node] = {}  # torch gives two calls for one tensor the same size.
    for node in filter(_finds_indices, list(graph.nodes)):
        indices = _indices(node, rows)
        if node.target in _AS_LIST:
            for pick in list(node.users):
                place: Any = pick.args[1]
                _replace(pick, indices[place])
            graph.erase_node(node)
        else:
            _replace(node, _joined(node, indices))


def _indices(node: Node, rows: dict[Node, Node]) -> list[Node]:
    """Insert the indices along each dimension, of shape [n], int64."""
    source: Any = node.args[0]
    if source not in rows:
        rows[source] = insert_call(node, aten.reshape.default, source, [-1])
    result = node.meta["val"]
    number = (result if node.target in _AS_COLUMNS else result[0]).shape[0]
    rows[source].meta["val"].nonzero_memo = number  # Instead of a new symbol.
    found = insert_call(node, aten.nonzero.default, rows[source])
    found.meta = {**node.meta, "val": found.meta["val"]}
    if node.meta.get("unbacked_bindings"):
        path: tuple[Any, ...] = (CallMethodKey("size"), SequenceKey(0))
        found.meta["unbacked_bindings"] = dict.fromkeys(node.meta["unbacked_bindings"], path)
    is_transposed = any(user.target in _TRANSPOSES for user in node.users)
    if is_transposed and not statically_known_true(number < 2):
        # ExecuTorch orders the strides (n, 1) if n is 2 or more, as torch traces other sizes; it
        # removes the check.
        number_found = insert_call(node, aten.sym_size.int, found, 0)
        is_traced = insert_call(node, operator.ge, number_found, 2)
        insert_call(node, aten._assert_scalar.default, is_traced, "a size to trace with")
    rest = insert_call(node, aten.reshape.default, found, [-1])
    indices: list[Node] = []
    for dim in reversed(range(1, source.meta["val"].dim())):
        size = insert_size(node, source, dim)
        indices.insert(0, insert_call(node, aten.remainder.Scalar, rest, size))
        rest = insert_call(node, aten.floor_divide.default, rest, size)
    return [rest, *indices]


def _joined(before: Node, indices: list[Node]) -> Node:
    """Insert the indices side by side; ExecuTorch's ``cat`` of columns without rows has none."""
    columns = [insert_call(before, aten.unsqueeze.default, each, 1) for each in indices]
    others = len(columns) - 1
    padded = (
        insert_call(before, aten.constant_pad_nd.default, each, [place, others - place])
        for place, each in enumerate(columns)
    )
    return (
        columns[0] if not others else reduce(partial(insert_call, before, aten.add.Tensor), padded)
    )


def _replace(node: Node, new: Node) -> None:
    """Give a node's uses and its name, which may be an output's, to another one."""
    new.meta = {**node.meta, "val": new.meta["val"]}
    new.meta.pop("unbacked_bindings", None)
    node.replace_all_uses_with(new)
    node.graph.erase_node(node)
    new.name = node.name
