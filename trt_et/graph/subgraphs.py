"""The graphs of a program, including branches and bodies of its control flow, and its inputs."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from typing import Final

from executorch.exir.graph_module import get_control_flow_submodules
from torch._ops import HigherOrderOperator
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.fx import Graph, GraphModule, Node

_ROLES: Final = {
    ("cond", 1): "true",
    ("cond", 2): "false",
    ("map_impl", 0): "body",
    ("scan", 0): "body",
    ("while_loop", 0): "condition",
    ("while_loop", 1): "body",
}

Replacement = Callable[[Node, Graph, dict[Node, Node]], Node | None]


@dataclass(frozen=True)
class Subgraph:
    """One graph of a program.

    Attributes:
        path: Empty for the program's main graph, otherwise the calling node and the role of the
            graph: ``cond/true``, ``map_impl/body``, ``cond/false/cond_1/true``.
        module: Its module.
        order: Sorts the graphs of a program in program order; with a node's position appended, it
            sorts their nodes.
        obstacle: Why engines cannot contain nodes of this graph; None if they can.
    """

    path: str
    module: GraphModule
    order: tuple[int, ...] = ()
    obstacle: str | None = None

    @property
    def graph(self) -> Graph:
        """Return the module's graph."""
        return self.module.graph

    @property
    def calls(self) -> list[Node]:
        """Return the calls of operators and functions in the graph."""
        return [node for node in self.graph.nodes if node.op == "call_function"]

    def name_of(self, node: Node | str) -> str:
        """Return a node's path and name, which is unique in the program."""
        name = node.name if isinstance(node, Node) else node
        return f"{self.path}/{name}" if self.path else name


def subgraphs(module: GraphModule) -> list[Subgraph]:
    """Return each graph of a program's module once, the main graph first."""
    collected: dict[int, Subgraph] = {}
    _collect(Subgraph("", module), collected)
    return list(collected.values())


def input_names(program: ExportedProgram) -> frozenset[str]:
    """Return the names of the placeholders for the caller's inputs.

    ``ExportGraphSignature.user_inputs`` has the value instead of the name for a Python number,
    because export turns numbers into constants.
    """
    specs = program.graph_signature.input_specs
    return frozenset(spec.arg.name for spec in specs if spec.kind is InputKind.USER_INPUT)


def nodes_of(program: ExportedProgram) -> list[Node]:
    """Return the nodes of all graphs of a program."""
    return [node for subgraph in subgraphs(program.graph_module) for node in subgraph.graph.nodes]


def edited(
    program: ExportedProgram, edit: Callable[[Graph], object], *, branches: bool = False
) -> ExportedProgram:
    """Return a copy of a program after an edit of its graph, and of its branches' if wanted.

    The edit keeps the names of inputs and outputs.
    """
    module = copied_module(program.graph_module)
    for subgraph in subgraphs(module) if branches else [Subgraph("", module)]:
        edit(subgraph.graph)
        subgraph.module.recompile()
    return program._update(module, program.graph_signature)


def copied_graph(
    source: Graph, replacement: Replacement = lambda *_: None
) -> tuple[Graph, dict[Node, Node]]:
    """Copy a graph under the names that signatures use; also return each node's copy.

    ``replacement(node, graph, copies)`` may return another node of the new graph for a node.
    """
    graph = Graph()
    copies: dict[Node, Node] = {}
    for node in source.nodes:
        new = replacement(node, graph, copies)
        if new is None:
            new = graph.node_copy(node, copies.__getitem__)
            new.name = node.name
        copies[node] = new
    graph.lint()
    return graph, copies


def copied_module(module: GraphModule) -> GraphModule:
    """Copy a module with its branches, and keep the node names that signatures use.

    fx renames nodes that shadow a builtin, such as ``input``, a common name in torch.nn.
    """
    copied: GraphModule = copy.deepcopy(module)
    for old, new in zip(subgraphs(module), subgraphs(copied), strict=True):
        for before, after in zip(old.graph.nodes, new.graph.nodes, strict=True):
            after.name = before.name
    return copied


def _collect(subgraph: Subgraph, collected: dict[int, Subgraph]) -> None:
    if id(subgraph.module) in collected:
        return
    collected[id(subgraph.module)] = subgraph
    lowered = {id(module) for _, module, _ in get_control_flow_submodules(subgraph.module)}
    for position, node in enumerate(subgraph.graph.nodes):
        if not isinstance(node.target, HigherOrderOperator):
            continue
        for index, argument in enumerate(node.args):
            module = _submodule(subgraph.module, argument)
            if module is None:
                continue
            operator = str(node.target)
            role = _ROLES.get((operator, index), f"argument{index}")
            obstacle = subgraph.obstacle
            if obstacle is None and id(module) not in lowered:
                obstacle = f"ExecuTorch lowers nothing inside of {operator}"
            path = f"{subgraph.name_of(node)}/{role}"
            _collect(
                Subgraph(path, module, (*subgraph.order, position, index), obstacle), collected
            )


def _submodule(owner: GraphModule, argument: object) -> GraphModule | None:
    if not isinstance(argument, Node) or argument.op != "get_attr":
        return None
    attribute = attrgetter(str(argument.target))(owner)
    return attribute if isinstance(attribute, GraphModule) else None
