"""Keeps a buffer's value that is another buffer as it is: ``self.before.copy_(self.now)``.

ExecuTorch 1.5 takes every new value that is a buffer for a write in place, and drops it, with any
backend (``_inplace_lineage`` in ``exir/passes/insert_write_back_for_buffers_pass.py``).
"""

from __future__ import annotations

from typing import Any, Final

import torch
from torch.export import ExportedProgram
from torch.fx import Graph, Node

from trt_et.graph.insertion import insert_call
from trt_et.graph.subgraphs import edited

aten = torch.ops.aten
# Of the same dtype, the casts return their input.
_ALIASES: Final = (aten.detach.default, aten.alias.default, aten.contiguous.default, aten.to.dtype)


def copy_buffers_of_buffers(program: ExportedProgram) -> ExportedProgram:
    """Write a copy of the other buffer instead of the buffer."""
    buffers = set(program.graph_signature.inputs_to_buffers)
    lost = [node.name for node in program.graph.nodes if _is_lost(node, buffers)]
    if not lost:
        return program

    def copy_sources(graph: Graph) -> None:
        for node in [node for node in graph.nodes if node.name in lost]:
            source: Any = node.args[1]
            node.replace_input_with(source, insert_call(node, aten.clone.default, source))

    return edited(program, copy_sources)


def _is_lost(node: Node, buffers: set[str]) -> bool:
    if node.target is not aten.copy_.default:
        return False
    buffer, source = node.args[:2]
    while isinstance(source, Node) and source.target in _ALIASES:
        source = source.args[0]
    names = {each.name for each in (buffer, source) if isinstance(each, Node)}
    return len(names) == 2 and names <= buffers
