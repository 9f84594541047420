"""Facts of an Edge program that the steps of a partitioning share, found once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch.export import ExportedProgram

from trt_et.graph.constants import known_constants
from trt_et.graph.subgraphs import Subgraph, input_names, subgraphs
from trt_et.partition.node_choice import NodeChoice


@dataclass(frozen=True)
class Analysis:
    """An Edge program and its parts.

    Attributes:
        program: The program.
        subgraphs: Its graphs, the main graph first.
        inputs: The names of the placeholders for the caller's inputs.
        constants: The values of the main graph's placeholders that never change, by name; None if a
            value is not known.
        unmatched: Messages about the names in the caller's options that match nothing in it, by the
            option and the name.
    """

    program: ExportedProgram
    subgraphs: Sequence[Subgraph]
    inputs: frozenset[str]
    constants: Mapping[str, torch.Tensor | None]
    unmatched: Mapping[tuple[str, str], str]

    @classmethod
    def of(cls, program: ExportedProgram, choices: Iterable[NodeChoice]) -> Analysis:
        """Analyse a program; the caller's choices are marked on its nodes."""
        graphs = subgraphs(program.graph_module)
        unmatched: dict[tuple[str, str], str] = {}
        for choice in choices:
            choice.mark(program, graphs)
            unmatched |= choice.unmatched(program, graphs)
        inputs, constants = input_names(program), known_constants(program)
        return cls(program, graphs, inputs, constants, unmatched)

    def constants_of(self, subgraph: Subgraph) -> Mapping[str, torch.Tensor | None]:
        """Return the constants of one graph; in a branch, the weights that it gets are arguments.

        They have the same names there.
        """
        return {} if subgraph.path else self.constants
