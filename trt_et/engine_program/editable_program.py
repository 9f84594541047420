"""Graphs whose calls and weights can be changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import (
    ExportGraphSignature,
    InputSpec,
    OutputKind,
    OutputSpec,
    TensorArgument,
)
from torch.fx import Graph, GraphModule, Node
from torch.nn import Parameter
from torch.utils._pytree import tree_structure


@dataclass
class EditableGraph:
    """A graph and its constants.

    Attributes:
        graph: Plain ATen; the caller may change it.
        values: The value of each constant, by placeholder.
    """

    graph: Graph
    values: dict[Node, torch.Tensor]

    def add_constant(self, like: Node, suffix: str, value: torch.Tensor, fake: Any) -> Node:  # noqa: ANN401
        """Add a constant, and its fake value, after one of the same kind: a parameter, a buffer...

        ``suffix`` makes its name, with the name of ``like``.
        """
        with self.graph.inserting_after(like):
            node = self.graph.placeholder(f"{like.name}_{suffix}")
        node.meta["val"] = fake
        self.values[node] = value.detach()
        return node


class EditableProgram(EditableGraph):
    """A program whose graph the caller may change, with its constants by placeholder name.

    Further outputs come last.
    """

    def __init__(self, program: ExportedProgram, constants: Mapping[str, Any]) -> None:
        graph = program.graph
        values = {node: constants.get(node.name) for node in graph.find_nodes(op="placeholder")}
        super().__init__(graph, {n: v for n, v in values.items() if isinstance(v, torch.Tensor)})
        self._program = program
        self._specs: dict[str, InputSpec] = {
            spec.arg.name: spec for spec in program.graph_signature.input_specs
        }
        self._state = dict(program.state_dict)
        self._constants = dict(program.constants)

    def add_constant(self, like: Node, suffix: str, value: torch.Tensor, fake: Any) -> Node:  # noqa: ANN401
        """See ``EditableGraph``."""
        node = super().add_constant(like, suffix, value, fake)
        value, spec = self.values[node], self._specs[like.name]
        arg = TensorArgument(name=node.name)
        self._specs[node.name] = replace(spec, arg=arg, target=node.name)
        if spec.target in self._state:
            is_parameter = isinstance(self._state[spec.target], Parameter)
            self._state[node.name] = Parameter(value, False) if is_parameter else value
        else:
            self._constants[node.name] = value
        return node

    def program(self) -> ExportedProgram:
        """Return the changed program, without the constants that have lost their last user.

        Tensors that were appended to the outputs are user outputs.
        """
        for node in list(self.values):
            if not node.users:
                del self.values[node], self._specs[node.name]
                self.graph.erase_node(node)
        self.graph.lint()
        inputs = [self._specs[node.name] for node in self.graph.find_nodes(op="placeholder")]
        results: Any = self.graph.output_node().args[0]
        specs = list(self._program.graph_signature.output_specs)
        new = OutputSpec(OutputKind.USER_OUTPUT, TensorArgument(name=""), None)
        specs += [new] * (len(results) - len(specs))
        outputs = [
            replace(spec, arg=replace(spec.arg, name=node.name))
            for spec, node in zip(specs, results, strict=True)
        ]
        targets = {spec.target for spec in inputs}
        return changed_program(
            self._program,
            self.graph,
            ExportGraphSignature(inputs, outputs),
            {name: value for name, value in self._state.items() if name in targets},
            {name: value for name, value in self._constants.items() if name in targets},
        )


def changed_program(
    program: ExportedProgram,
    graph: Graph,
    signature: ExportGraphSignature,
    state: dict[str, Any],
    constants: dict[str, Any],
) -> ExportedProgram:
    """Return a program of another graph, which takes its user inputs one by one."""
    (entry, *others) = program.module_call_graph
    if entry.signature is not None:
        in_spec = tree_structure(((0,) * len(signature.user_inputs), {}))
        out_spec = entry.signature.out_spec
        outputs = len(signature.user_outputs)
        if out_spec.num_leaves != outputs:
            out_spec = tree_structure((0,) * outputs)
        called = replace(entry.signature, in_spec=in_spec, out_spec=out_spec)
        entry = replace(entry, signature=called)
    return ExportedProgram(
        root=GraphModule(torch.nn.Module(), graph),
        graph=graph,
        graph_signature=signature,
        state_dict=state,
        range_constraints=program.range_constraints,
        module_call_graph=[entry, *others],
        example_inputs=None,
        constants=constants,
    )
