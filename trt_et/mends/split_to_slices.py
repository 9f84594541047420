"""Replace splits of dynamic sizes by slices.

ExecuTorch 1.5's check of Edge programs reads the length of the first result of an operator that
returns a list (``EdgeOpArgValidator`` in ``exir/verification/arg_validator.py``). That specializes
a dynamic size: a program for any batch silently becomes one for the example's batch. See
``docs/internals/upstream/executorch_split.md``.
"""

from __future__ import annotations

import logging
import operator
from collections.abc import Sequence
from typing import Any, Final

import torch
from torch._ops import OpOverload
from torch.export import ExportedProgram, default_decompositions
from torch.fx import Graph, Node

from trt_et.graph.insertion import insert_call
from trt_et.graph.size_expressions import ShownSizes
from trt_et.graph.subgraphs import edited, nodes_of
from trt_et.graph.symbolic_shapes import is_static
from trt_et.mends.contiguous_products import RECURRENT

_log = logging.getLogger(__name__)

aten = torch.ops.aten

_SPLITS: Final[tuple[OpOverload, ...]] = (
    aten.chunk.default,
    aten.split.Tensor,
    aten.split_with_sizes.default,
    aten.tensor_split.sections,
    aten.tensor_split.indices,
    aten.unsafe_chunk.default,
    aten.unsafe_split.Tensor,
    aten.unsafe_split_with_sizes.default,
)
_OF_SIZES: Final = (
    aten.split_with_sizes.default,
    aten.unsafe_split_with_sizes.default,
)


def replace_split_with_slice(program: ExportedProgram) -> ExportedProgram:
    """Replace splits whose results have a dynamic first size by slices."""
    if not program.range_constraints:
        return program
    # Their decompositions split.
    recurrent = {n.target for n in nodes_of(program) if n.target in RECURRENT and not is_static(n)}
    if recurrent:
        known = default_decompositions()
        program = program.run_decompositions({op: known[op] for op in RECURRENT if op in recurrent})
    if not any(map(_is_dynamic_list, nodes_of(program))):
        return program
    return edited(program, _slice_lists, branches=True)


def _slice_lists(graph: Graph) -> None:
    for node in filter(_is_dynamic_list, list(graph.nodes)):
        _slice(node)
        graph.erase_node(node)


def _is_dynamic_list(node: Node) -> bool:
    if node.target not in _SPLITS and node.target is not aten.unbind.int:
        return False
    parts = node.meta["val"]
    if not parts or parts[0].dim() == 0:
        return False
    dim = _dim(node)
    if node.target is not aten.unbind.int and not all(isinstance(p.shape[dim], int) for p in parts):
        # Torch-TensorRT does not take computed sizes either.
        return node.target in _OF_SIZES or all(_shown_to(node).show(p.shape[dim]) for p in parts)
    return isinstance(parts[0].shape[0], torch.SymInt)


def _shown_to(node: Node) -> ShownSizes:
    source: Any = node.args[0]
    return ShownSizes([source, *node.graph.find_nodes(op="placeholder")])


def _dim(node: Node) -> int:
    position = 1 if node.target is aten.unbind.int else 2
    dim: Any = node.args[position] if len(node.args) > position else node.kwargs.get("dim", 0)
    source: Any = node.args[0]
    return int(dim) % int(source.meta["val"].dim())


def _slice(node: Node) -> None:
    """Replace each ``getitem`` by a slice with the same name."""
    dim, source, parts = _dim(node), node.args[0], node.meta["val"]
    sizes: Any = ()
    if node.target in _OF_SIZES:
        sizes = node.args[1]
    elif node.target is not aten.unbind.int:
        shown = _shown_to(node)
        sizes = [shown.insert(node, part.shape[dim]) for part in parts]
    for pick in list(node.users):
        index: Any = pick.args[1]
        index %= len(parts)
        if node.target is aten.unbind.int:
            pick.target, pick.args = aten.select.int, (source, dim, index)
        else:
            start = _sum(pick, sizes[:index])
            end = _sum(pick, [start, sizes[index]])
            pick.target, pick.args = aten.slice.Tensor, (source, dim, start, end)


def _sum(before: Node, sizes: Sequence[Any]) -> Any:  # noqa: ANN401
    """Return the sum of numbers and of nodes that compute numbers."""
    total: Any = sum(size for size in sizes if isinstance(size, int))
    for size in sizes:
        if isinstance(size, Node):
            total = insert_call(before, operator.add, total, size) if total != 0 else size
    return total
