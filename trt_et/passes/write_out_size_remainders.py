"""Replaces remainders of negative sizes, which ExecuTorch computes with the wrong sign."""

from __future__ import annotations

from typing import Any

import torch
from torch._decomp import get_decompositions
from torch.export import ExportedProgram
from torch.fx import Node

from trt_et.graph.size_remainders import has_negative_remainder, write_out_remainders
from trt_et.graph.subgraphs import copied_module, subgraphs

__all__ = ["write_out_size_remainders"]

aten = torch.ops.aten


def write_out_size_remainders(program: ExportedProgram) -> ExportedProgram:
    """Return the program with remainders of sizes computed from quotients.

    Args:
        program: As ``torch.export`` returns it; not changed.

    Returns:
        A new program; the same one if it has no remainder of a size that may be negative.
    """
    if not program.range_constraints:
        return program
    if any(_is_dynamic_roll(node) for node in _nodes(program)):
        # Its decomposition computes the remainder of its shift.
        rolls: list[Any] = [aten.roll.default]
        program = program.run_decompositions(get_decompositions(rolls))
    if not any(has_negative_remainder(node) for node in _nodes(program)):
        return program
    module = copied_module(program.graph_module)
    for subgraph in subgraphs(module):
        write_out_remainders(subgraph.graph)
        subgraph.module.recompile()
    return program._update(module, program.graph_signature)


def _nodes(program: ExportedProgram) -> list[Node]:
    return [node for subgraph in subgraphs(program.graph_module) for node in subgraph.graph.nodes]


def _is_dynamic_roll(node: Node) -> bool:
    if node.target is not aten.roll.default:
        return False
    return any(isinstance(size, torch.SymInt) for size in node.meta["val"].shape)
