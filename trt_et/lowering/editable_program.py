"""A copy of a partition's program whose graph and weights can be changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch._export.verifier import Verifier
from torch.export import ExportedProgram, ModuleCallEntry
from torch.export.graph_signature import (
    ExportGraphSignature,
    InputSpec,
    OutputKind,
    OutputSpec,
    TensorArgument,
)
from torch.fx import Graph, GraphModule, Node
from torch.nn import Parameter
from torch.utils._pytree import tree_flatten

__all__ = ["EditableProgram"]


class EditableProgram:
    """A copy of a program; its weights are not copied.

    Args:
        program: Plain ATen; not changed.
        constants: Its constants by placeholder name.

    Attributes:
        graph: The copied graph, which the caller may change. Further outputs come last.
        values: The value of each constant, by placeholder.
    """

    def __init__(self, program: ExportedProgram, constants: Mapping[str, Any]) -> None:
        self._program = program
        self.graph = Graph()
        copies: dict[Node, Node] = {}
        for node in program.graph.nodes:
            copies[node] = self.graph.node_copy(node, copies.__getitem__)
            copies[node].name = node.name
        by_name = {new.name: new for new in copies.values()}
        self.values: dict[Node, torch.Tensor] = {
            by_name[name]: value
            for name, value in constants.items()
            if isinstance(value, torch.Tensor)
        }
        self._specs: dict[str, InputSpec] = {
            spec.arg.name: spec for spec in program.graph_signature.input_specs
        }
        self._state = dict(program.state_dict)
        self._constants = dict(program.constants)

    def add_constant(self, like: Node, suffix: str, value: torch.Tensor, fake: Any) -> Node:  # noqa: ANN401
        """Add a constant after another one.

        Args:
            like: The placeholder of a constant of the same kind: a parameter, a buffer, ...
            suffix: Makes the name of the new placeholder, with the name of ``like``.
            value: The new constant.
            fake: Its fake value.
        """
        name = f"{like.name}_{suffix}"
        with self.graph.inserting_after(like):
            node = self.graph.placeholder(name)
        node.meta["val"] = fake
        self._specs[node.name] = replace(
            self._specs[like.name], arg=TensorArgument(name=node.name), target=node.name
        )
        self.values[node] = value = value.detach()
        if self._specs[like.name].target in self._state:
            is_parameter = isinstance(self._state[str(self._specs[like.name].target)], Parameter)
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
        return ExportedProgram(
            root=GraphModule(torch.nn.Module(), self.graph),
            graph=self.graph,
            graph_signature=ExportGraphSignature(inputs, outputs),
            state_dict={name: v for name, v in self._state.items() if name in targets},
            range_constraints=self._program.range_constraints,
            module_call_graph=self._call_graph(len(results)),
            example_inputs=None,
            constants={name: v for name, v in self._constants.items() if name in targets},
            verifiers=[Verifier],
        )

    def _call_graph(self, outputs: int) -> list[ModuleCallEntry]:
        (entry, *others) = self._program.module_call_graph
        if entry.signature is None or entry.signature.out_spec.num_leaves == outputs:
            return [entry, *others]
        out_spec = tree_flatten((0,) * outputs)[1]
        return [replace(entry, signature=replace(entry.signature, out_spec=out_spec)), *others]
