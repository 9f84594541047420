"""Replaces remainders of negative sizes, which ExecuTorch computes with the wrong sign."""

from __future__ import annotations

from typing import Any

import torch
from torch._decomp import get_decompositions
from torch.export import ExportedProgram

from trt_et.graph.size_remainders import has_negative_remainder, write_out_remainders
from trt_et.graph.subgraphs import edited, nodes_of
from trt_et.graph.symbolic_shapes import is_static

aten = torch.ops.aten


def write_out_size_remainders(program: ExportedProgram) -> ExportedProgram:
    """Compute remainders of sizes from quotients, if a size may be negative."""
    if not program.range_constraints:
        return program
    if any(n.target is aten.roll.default and not is_static(n) for n in nodes_of(program)):
        # Its decomposition computes the remainder of its shift.
        rolls: list[Any] = [aten.roll.default]
        program = program.run_decompositions(get_decompositions(rolls))
    if not any(map(has_negative_remainder, nodes_of(program))):
        return program
    return edited(program, write_out_remainders, branches=True)
