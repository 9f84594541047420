"""Copies results of ``cond`` that are read after later control flow.

ExecuTorch 1.5 plans all branches and bodies of a graph in the same memory, and the result of
``cond`` stays in the memory of its branch (``_emit_cond`` in ``exir/emit/_emitter.py`` moves no
bytes). The next ``cond``, ``map`` or ``scan`` of the graph overwrites it, with any backend.
"""

from __future__ import annotations

import logging
import operator
from collections.abc import Iterable, Iterator
from typing import Any, Final

import torch
from executorch.exir.dialects._ops import ops as exir_ops
from torch._ops import HigherOrderOperator
from torch.export import ExportedProgram
from torch.fx import Graph, GraphModule, Node

from trt_et.graph.insertion import insert_call
from trt_et.graph.subgraphs import Subgraph, edited, subgraphs

_log = logging.getLogger(__name__)

_COND: Final = torch.ops.higher_order.cond
# The arguments that are graphs, and the one that lists further operands of all of them.
_GRAPHS_AND_OPERANDS: Final[dict[HigherOrderOperator, tuple[tuple[int, ...], int]]] = {
    _COND: ((1, 2), 3),
    torch.ops.higher_order.map_impl: ((0,), 2),
    torch.ops.higher_order.scan: ((0,), 3),
}


def copy_results_of_control_flow(program: ExportedProgram) -> ExportedProgram:
    """Copy each result of a ``cond`` before the next control flow of its graph overwrites it.

    The copy is a further operand of that control flow, so that no later pass puts it after that.
    """
    if not any(map(_is_at_risk, (each.graph for each in subgraphs(program.graph_module)))):
        return program
    return edited(program, _copy_results, branches=True)


def warn_overwritten_results(graphs: Iterable[Subgraph]) -> None:
    """Warn if a graph of an Edge program has a ``cond`` whose result may be overwritten."""
    for subgraph in graphs:
        for node, following in zip(*_neighbours(subgraph.graph), strict=True):
            readers = {reader for result in _results(node) for reader in _readers(result)}
            if node.target is _COND and not readers <= _ancestors(following):
                _log.warning(
                    "the result of %s is wrong if it is read after %s: ExecuTorch plans both in "
                    "one memory. Lower with to_edge_transform_and_lower(..., "
                    "partitioner=[TensorRTPartitioner()]), which copies it before",
                    subgraph.name_of(node),
                    subgraph.name_of(following),
                )


def _neighbours(graph: Graph) -> tuple[list[Node], list[Node]]:
    """Return the control flow of a graph before others, and the next one of each."""
    nodes = [node for node in graph.nodes if node.target in _GRAPHS_AND_OPERANDS]
    return nodes[:-1], nodes[1:]


def _is_at_risk(graph: Graph) -> bool:
    before, after = _neighbours(graph)
    return any(node.target is _COND for node in (*before, *after[-1:])) and bool(after)


def _copy_results(graph: Graph) -> None:
    """Give the control flow of a graph its order, and copy the results of each ``cond``."""
    if not _is_at_risk(graph):
        return
    for node, following in zip(*_neighbours(graph), strict=True):
        results = _results(node) or [insert_call(node.next, operator.getitem, node, 0)]
        if node.target is _COND:
            for result in results:
                _copy(result)
        else:
            results = results[:1]
        known = _ancestors(following)
        for result in results:
            if result not in known:
                _add_operand(following, result)


def _results(node: Node) -> list[Node]:
    return [user for user in node.users if isinstance(user.meta.get("val"), torch.Tensor)]


def _readers(result: Node) -> Iterator[Node]:
    """Iterate over what reads the memory of a result; ExecuTorch's views have no other memory."""
    for user in result.users:
        if user.target is exir_ops.edge.aten.view_copy.default:
            yield from _readers(user)
        else:
            yield user


def _copy(result: Node) -> None:
    """Make a ``getitem`` a copy of the result; it keeps its name, which the signature may have."""
    with result.graph.inserting_before(result):
        original = result.graph.call_function(operator.getitem, result.args)
    original.meta = dict(result.meta)
    result.target, result.args = torch.ops.aten.clone.default, (original,)


def _ancestors(node: Node) -> set[Node]:
    found: set[Node] = set()
    waiting = [node]
    while waiting:
        new = set(waiting.pop().all_input_nodes) - found
        found |= new
        waiting += new
    return found


def _add_operand(node: Node, tensor: Node) -> None:
    """Add an operand that the graphs of control flow do not read."""
    owner: Any = node.graph.owning_module
    graphs, position = _GRAPHS_AND_OPERANDS[node.target]  # type: ignore[index]
    for index in graphs:
        source: Any = node.args[index]
        module: GraphModule = getattr(owner, source.target)
        last = module.graph.find_nodes(op="placeholder")[-1:]
        with module.graph.inserting_after(*last):
            operand = module.graph.placeholder(f"{tensor.name}_before")
        operand.meta["val"] = tensor.meta["val"]
        module.recompile()
    operands: Any = node.args[position]
    node.update_arg(position, type(operands)((*operands, tensor)))
