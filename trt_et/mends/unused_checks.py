"""Erases checks of values that nothing else uses.

``x[mask]`` checks the number of its rows, which keeps the tensor alive. ExecuTorch removes all
checks, but only after it has cut the graph, and its cut fails if checks come after the output.
"""

from __future__ import annotations

from typing import Final

import torch
from torch.export import ExportedProgram
from torch.fx import Graph, Node

from trt_et.graph.subgraphs import edited, nodes_of

aten = torch.ops.aten

_CHECKS: Final = (
    aten._assert_scalar.default,
    aten.sym_constrain_range.default,
    aten.sym_constrain_range_for_size.default,
)


def erase_unused_checks(program: ExportedProgram) -> ExportedProgram:
    """Erase each check of a value that no output and no write depends on."""
    if not any(node.target in _CHECKS for node in nodes_of(program)):
        return program
    return edited(program, _erase, branches=True)


def _erase(graph: Graph) -> None:
    used = _used(graph)
    for node in reversed(graph.nodes):
        if node.target in _CHECKS and not used.issuperset(node.all_input_nodes):
            graph.erase_node(node)
    graph.eliminate_dead_code()


def _used(graph: Graph) -> set[Node]:
    """Return the nodes that an output or a write depends on."""
    pending = [node for node in graph.nodes if node.is_impure() and node.target not in _CHECKS]
    used = set(pending)
    while pending:
        new = set(pending.pop().all_input_nodes) - used
        used |= new
        pending += new
    return used
