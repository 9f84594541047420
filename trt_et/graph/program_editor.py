"""Edits a copy of an exported program: its graph and its constants."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.export import ExportedProgram
from torch.export.graph_signature import ExportGraphSignature
from torch.fx import Node

from trt_et.graph.arguments import written_nodes
from trt_et.graph.constants import add_constant, constant_values
from trt_et.graph.subgraphs import copied_module


class ProgramEditor:
    """A copy of a program, with the values of its constants.

    Args:
        program: The program; not changed.
        kind: A part of the names of the constants that are added.

    Attributes:
        module: The copy of its module.
        graph: Its main graph; the caller may change it.
        values: The placeholders of weights and constants that exist and are never written to.
    """

    def __init__(self, program: ExportedProgram, kind: str) -> None:
        self._program = program
        self._kind = kind
        self.module = copied_module(program.graph_module)
        self.graph = self.module.graph
        self._specs = list(program.graph_signature.input_specs)
        self._new: dict[str, torch.Tensor] = {}
        known, written = constant_values(program), written_nodes(self.graph)
        self.values: dict[Node, torch.Tensor] = {
            node: known[node.name].detach()
            for node in self.graph.find_nodes(op="placeholder")
            if node.name in known and node not in written
        }
        self.values = {n: v for n, v in self.values.items() if not isinstance(v, FakeTensor)}

    def add_constant(self, value: torch.Tensor) -> Node:
        """Add a constant; return its placeholder."""
        target = f"_trt_et_{self._kind}_{len(self._new)}"
        self._new[target] = value.detach().contiguous().clone()
        node = add_constant(self.graph, self._specs, target, self._new[target])
        self.values[node] = self._new[target]
        return node

    def program(self) -> ExportedProgram:
        """Return the changed program, without the constants that have lost their last user."""
        for node in self.graph.find_nodes(op="placeholder"):
            if node in self.values and not node.users:
                self.graph.erase_node(node)
        self.graph.lint()
        self.module.recompile()
        names = {node.name for node in self.graph.find_nodes(op="placeholder")}
        results: Any = self.graph.output_node().args[0]
        outputs = zip(self._program.graph_signature.output_specs, results, strict=True)
        signature = ExportGraphSignature(
            [spec for spec in self._specs if spec.arg.name in names],
            [
                replace(spec, arg=replace(spec.arg, name=node.name))
                if isinstance(node, Node)
                else spec
                for spec, node in outputs
            ],
        )
        constants = {**self._program.constants, **self._new}
        return self._program._update(self.module, signature, constants=constants)
