"""Gives caches the layout that an engine can write in place.

TensorRT writes rows along the third of four dimensions. A cache of shape ``[batch, positions,
heads, width]`` has the same memory as ``[batch, 1, positions, heads * width]``, so this
pass gives the buffer that shape, and everything that reads its new value a view of the old shape.
"""

from __future__ import annotations

import math
from typing import Any, Final

import torch
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.fx import Graph, Node
from torch.fx.experimental.symbolic_shapes import statically_known_true

from trt_et.graph.insertion import insert_call
from trt_et.graph.subgraphs import copied_module

__all__ = ["lay_out_caches"]

aten = torch.ops.aten

_POSITIONS: Final = 2  # The dimension of four that TensorRT writes along.
_FLOATS: Final = (torch.float32, torch.float16, torch.bfloat16)
_IN_PLACE: Final[dict[Any, OpOverload]] = {
    aten.index_copy_.default: aten.index_copy.default,
    aten.index_put_.default: aten.index_put.default,
}


def lay_out_caches(program: ExportedProgram) -> ExportedProgram:
    """Change the shape of caches that are written along another dimension than the third of four.

    Args:
        program: As ``torch.export`` returns it; not changed.

    Returns:
        A new program; the same one if it has no such cache.
    """
    buffers = program.graph_signature.inputs_to_buffers
    if not any(_cache(node, buffers) for node in program.graph.nodes):
        return program
    functional = program.run_decompositions({})
    signature = functional.graph_signature
    names = [str(getattr(spec.arg, "name", "")) for spec in signature.output_specs]
    module = copied_module(functional.graph_module)
    state, constants = dict(functional.state_dict), dict(functional.constants)
    for node in list(module.graph.nodes):
        cache = _cache(node, signature.inputs_to_buffers)
        # A value that is also returned keeps its shape.
        if cache is None or names.count(node.name) != 1 or set(cache.users) != {node}:
            continue
        shape = _write_along_third(module.graph, node, cache)
        target = signature.inputs_to_buffers[cache.name]
        values = state if target in state else constants
        values[target] = values[target].reshape(shape)
    module.recompile()
    changed: ExportedProgram = functional._update(
        module, signature, state_dict=state, constants=constants
    )
    return changed


def _cache(node: Node, buffers: dict[str, str]) -> Node | None:
    """Return the buffer that a call writes rows to, if it has another layout."""
    target = _IN_PLACE.get(node.target, node.target)
    if target not in _IN_PLACE.values():
        return None
    cache: Any = node.args[0]
    dim = _dimension(node)
    if cache.name not in buffers or dim is None:
        return None
    value, index, rows = cache.meta["val"], *(a.meta["val"] for a in _index_and_rows(node))
    expected = [*value.shape[:dim], *index.shape, *value.shape[dim + 1 :]]
    # ``index_put`` of one row may come without leading dimensions of size 1.
    found = [1] * (len(expected) - rows.dim()) + list(rows.shape)
    if (
        value.dtype not in _FLOATS
        or (value.dim(), dim) == (4, _POSITIONS)
        or index.dim() != 1
        or index.dtype is torch.bool
        or len(expected) != len(found)
        or not all(statically_known_true(a == b) for a, b in zip(expected, found, strict=True))
    ):
        return None
    return cache  # type: ignore[no-any-return]


def _dimension(node: Node) -> int | None:
    """Return the dimension of the rows, if they are written along one only, and not added."""
    if "index_copy" in str(node.target):
        dim: Any = node.args[1]
        cache: Any = node.args[0]
        return int(dim) % max(int(cache.meta["val"].dim()), 1)
    indices: Any = node.args[1]
    if len(node.args) > 3 or node.kwargs or any(index is not None for index in indices[:-1]):
        return None
    return len(indices) - 1


def _index_and_rows(node: Node) -> tuple[Node, Node]:
    arguments: Any = node.args
    if "index_copy" in str(node.target):
        return arguments[2], arguments[3]
    return arguments[1][-1], arguments[2]


def _write_along_third(graph: Graph, node: Node, cache: Node) -> list[int]:
    """Change the shape of a cache and of the rows written to it; return the cache's new shape."""
    dim: Any = _dimension(node)
    index, rows = _index_and_rows(node)
    old = cache.meta["val"]
    sizes = [int(size) for size in old.shape]
    outer, inner = math.prod(sizes[:dim]), math.prod(sizes[dim + 1 :])
    shape = [outer, 1, sizes[dim], inner]
    with old.fake_mode:
        cache.meta["val"] = torch.empty(shape, dtype=old.dtype, device=old.device)
    cache.meta.pop("tensor_meta", None)
    rows = insert_call(node, aten.reshape.default, rows, [outer, 1, -1, inner])
    if "index_copy" in str(node.target):
        new = insert_call(node, node.target, cache, _POSITIONS, index, rows)
    else:
        new = insert_call(node, node.target, cache, [None, None, index], rows)
    same = insert_call(node, aten.reshape.default, new, sizes)
    for user in list(node.users):
        user.replace_input_with(node, new if user.op == "output" else same)
    if not same.users:
        graph.erase_node(same)
    graph.erase_node(node)
    new.name = node.name  # The program's signature names the new values of buffers.
    return shape
