"""Gives caches the layout that an engine can write in place.

TensorRT writes rows along the third of four dimensions. A cache of shape ``[batch, positions,
heads, width]`` has the same memory as ``[batch, 1, positions, heads * width]``, so this
pass gives the buffer that shape, and everything that reads its new value a view of the old shape.
"""

from __future__ import annotations

import math
from typing import Any, Final, NamedTuple

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from trt_et.graph.insertion import insert_call
from trt_et.graph.marks import inherit_marks
from trt_et.graph.operators import FLOATS
from trt_et.graph.subgraphs import copied_module
from trt_et.graph.symbolic_shapes import same_sizes

aten = torch.ops.aten

_POSITIONS: Final = 2  # The dimension of four that TensorRT writes along.
_INDEX_COPY: Final = (aten.index_copy.default, aten.index_copy_.default)
_INDEX_PUT: Final = (aten.index_put.default, aten.index_put_.default)


def lay_out_caches(program: ExportedProgram) -> ExportedProgram:
    """Change the shape of caches whose rows are not along the third of four dimensions."""
    buffers = program.graph_signature.inputs_to_buffers
    if not any(_write_to(buffers, node) for node in program.graph.nodes):
        return program
    functional: ExportedProgram = program.run_decompositions({})
    signature = functional.graph_signature
    names = [str(getattr(spec.arg, "name", "")) for spec in signature.output_specs]
    module = copied_module(functional.graph_module)
    state, constants = dict(functional.state_dict), dict(functional.constants)
    for node in list(module.graph.nodes):
        write = _write_to(signature.inputs_to_buffers, node)
        # A value that is also returned keeps its shape.
        if write is None or names.count(node.name) != 1 or set(write.cache.users) != {node}:
            continue
        target = signature.inputs_to_buffers[write.cache.name]
        shape = _write_along_third(node, write)
        values = state if target in state else constants
        values[target] = values[target].reshape(shape)
    return functional._update(module, signature, state_dict=state, constants=constants)


class _Write(NamedTuple):
    """A call that writes rows to a cache along one dimension, taken apart."""

    cache: Node
    dim: int
    places: Node
    rows: Node


def _write_to(buffers: dict[str, str], node: Node) -> _Write | None:
    """Return the write of a call to a buffer of another layout; None for other calls."""
    arguments: Any = node.args
    if node.target in _INDEX_COPY:
        cache, dim, index_node, rows_node = arguments
        dim %= max(cache.meta["val"].dim(), 1)
    elif node.target in _INDEX_PUT:
        cache, (*others, index_node), rows_node, *accumulate = arguments
        if accumulate or node.kwargs or any(index is not None for index in others):
            return None
        dim = len(others)
    else:
        return None
    if cache.name not in buffers:
        return None
    value, index, rows = (each.meta["val"] for each in (cache, index_node, rows_node))
    expected = [*value.shape[:dim], *index.shape, *value.shape[dim + 1 :]]
    # ``index_put`` of one row may come without leading dimensions of size 1.
    given = [1] * (len(expected) - rows.dim()) + list(rows.shape)
    if (
        value.dtype not in FLOATS
        or (value.dim(), dim) == (4, _POSITIONS)
        or index.dim() != 1
        or index.dtype is torch.bool
        or not same_sizes(expected, given)
    ):
        return None
    return _Write(cache, dim, index_node, rows_node)


def _write_along_third(node: Node, write: _Write) -> list[int]:
    """Change the shape of a cache and of the rows written to it; return the cache's new shape."""
    cache, dim, index, rows = write
    old = cache.meta["val"]
    sizes = [int(size) for size in old.shape]
    outer, inner = math.prod(sizes[:dim]), math.prod(sizes[dim + 1 :])
    shape = [outer, 1, sizes[dim], inner]
    with old.fake_mode:
        cache.meta["val"] = torch.empty(shape, dtype=old.dtype, device=old.device)
    cache.meta.pop("tensor_meta", None)
    rows = insert_call(node, aten.reshape.default, rows, [outer, 1, -1, inner])
    if node.target in _INDEX_COPY:
        new = insert_call(node, node.target, cache, _POSITIONS, index, rows)
    else:
        new = insert_call(node, node.target, cache, [None, None, index], rows)
    inherit_marks(new, node)
    same = insert_call(node, aten.reshape.default, new, sizes)
    for user in list(node.users):
        user.replace_input_with(node, new if user.op == "output" else same)
    if not same.users:
        node.graph.erase_node(same)
    node.graph.erase_node(node)
    new.name = node.name  # The program's signature names the new values of buffers.
    return shape
