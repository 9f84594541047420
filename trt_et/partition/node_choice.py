"""Implements the options ``excluded_ops`` and ``float32_ops``: names of operators and nodes.

A name comes from the Edge program (as the report prints it) or from the exported program, whose
``aten.conv2d`` is an ``aten.convolution`` in the Edge program and whose ``aten.linear`` may be a
matrix product and an addition. The choice is marked on the nodes of both, and decompositions keep
the marks. Of a program that ``to_edge`` decomposed before the partitioner saw it, torch has the
original nodes in ``node.meta["from_node"]``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from difflib import get_close_matches
from typing import Any, Final

import torch
from torch._ops import OpOverload, OpOverloadPacket
from torch.export import ExportedProgram
from torch.fx import Node

from trt_et.engine_program.edge_to_aten import aten_target
from trt_et.errors import OptionError
from trt_et.graph.marks import Mark
from trt_et.graph.subgraphs import Subgraph, subgraphs

Choice = str | OpOverload | OpOverloadPacket | Callable[[Node], bool]

_SHOWN: Final = 5
# Names that torch 2.13 records for the pass that took a node over from an exported program, and
# from the graph of a strict export.
_PROGRAM: Final = "ExportedProgram.module()"
_DYNAMO: Final = "Interpreter_DynamoGraphTransformer"


class NodeChoice:
    """The checked value of ``excluded_ops`` or ``float32_ops``.

    Args:
        items: Overloads; packets (``torch.ops.aten.mul`` for all overloads); their names
            (``"aten.mul.Tensor"``, ``"aten::mul"``); names of nodes, which have no dot (in a branch
            also with the path: ``"cond/true/aten_mul_tensor"``); or functions that return True for
            a node to choose.
        option: The option's name, for messages.

    Raises:
        OptionError: An item is none of these, or names an operator that does not exist.
    """

    def __init__(self, items: Collection[Choice] = (), option: str = "excluded_ops") -> None:
        self._option = option
        if isinstance(items, str) or not isinstance(items, Collection):
            raise OptionError(f"{option} is {items!r}; expected a collection, such as ['aten.mul']")
        self._operators: set[str] = set()
        self._nodes: set[str] = set()
        self._functions: list[Callable[[Node], bool]] = []
        # Names that must match something, as the caller wrote them.
        self._given: dict[str, str] = {}
        self._chosen = Mark.own(option)
        self._unmatched = Mark.own(f"{option}.unmatched")
        for item in items:
            if isinstance(item, str):
                self._given[self._add_name(item)] = item
            elif isinstance(item, OpOverload | OpOverloadPacket):
                self._add_name(str(item))
            elif callable(item) and not isinstance(item, type):
                self._functions.append(item)
            else:
                raise OptionError(
                    f"{option} holds {item!r}; expected an operator, the name of an operator "
                    "or of a node, or a function from a node to a bool"
                )

    @property
    def names(self) -> set[tuple[str, str]]:
        """Return the names that must match something, each with the option."""
        return {(self._option, name) for name in self._given}

    @property
    def has_names(self) -> bool:
        """Return whether the caller names operators or nodes, not functions alone."""
        return bool(self._operators or self._nodes)

    def may_name_parts_of(self, operator: OpOverload) -> bool:
        """Return whether the caller names operators or nodes, and not this operator."""
        name = str(operator).removesuffix(f".{operator._overloadname}")
        return self.has_names and self._operators.isdisjoint((name, str(operator)))

    def mark(self, program: ExportedProgram, graphs: Iterable[Subgraph] | None = None) -> None:
        """Mark the calls that the caller chooses; earlier marks stay.

        Args:
            program: An exported program or an Edge program; its nodes are marked.
            graphs: Its ``subgraphs``, if they are known.
        """
        if not (self.has_names or self._functions):
            return
        output = program.graph.output_node()
        before = self._unmatched.of(output)
        unmatched = set(self._given if before is None else before)
        for subgraph in subgraphs(program.graph_module) if graphs is None else graphs:
            for node in subgraph.calls:
                operators, names = set(_operator_names(node)), set(_node_names(node, subgraph))
                unmatched -= operators | names
                if self.reason(node) is None:
                    self._chosen.write(node, self._match(node, operators, names))
        self._unmatched.write(output, sorted(unmatched))

    def reason(self, node: Node) -> str | None:
        """Return the reason if the caller chooses a node of a marked program, else None."""
        reason: str | None = self._chosen.of(node)
        return reason

    def includes(self, node: Node) -> bool:
        """Return whether the caller chooses a node of a marked program."""
        return self.reason(node) is not None

    def _match(self, node: Node, operators: set[str], names: set[str]) -> str | None:
        if not self._operators.isdisjoint(operators):
            return "its operator is excluded by the caller"
        is_chosen = not self._nodes.isdisjoint(names) or (
            _is_operator(node) and any(self._ask(chooses, node) for chooses in self._functions)
        )
        return "it is excluded by the caller" if is_chosen else None

    def _ask(self, chooses: Callable[[Node], bool], node: Node) -> bool:
        try:
            return chooses(node)
        except Exception as error:
            name = getattr(chooses, "__name__", repr(chooses))
            raise OptionError(
                f"{self._option}: the function {name} fails on node {node}: "
                f"{type(error).__name__}: {error}. It gets a torch.fx.Node and returns a bool; "
                "name an operator as 'aten.mul' or torch.ops.aten.mul"
            ) from error

    def unmatched(
        self, program: ExportedProgram, graphs: Iterable[Subgraph]
    ) -> dict[tuple[str, str], str]:
        """Return messages about the names that match nothing in a marked program.

        The messages, with the nearest names, are by the option and the name.
        """
        unmatched = self._unmatched.of(program.graph.output_node())
        if not unmatched:
            return {}
        known = {
            name
            for subgraph in graphs
            for node in subgraph.calls
            for name in (*_operator_names(node), *_node_names(node, subgraph))
        }
        return {(self._option, name): self._message(name, known) for name in unmatched}

    def _message(self, name: str, known: set[str]) -> str:
        near = _nearest(name, {each for each in known if ("." in name) == ("." in each)})
        return (
            f"{self._option} names {self._given[name]!r}, which matches no operator and no node of "
            f"the program{near}. The names are in str(partitioner.explain(exported_program)) and "
            "in print(exported_program)"
        )

    def _add_name(self, text: str) -> str:
        name = text.replace("::", ".").removeprefix("torch.ops.")
        if "." not in name:
            self._nodes.add(name)
        elif _exists(name):
            self._operators.add(name)
        else:
            namespace, _, rest = name.partition(".")
            packets = dir(getattr(torch.ops, namespace))
            near = _nearest(rest.partition(".")[0], packets, f"{namespace}.")
            raise OptionError(
                f"{self._option} names the operator {text!r}, which torch.ops does not have{near}; "
                "expected a name such as 'aten.mul' or 'aten.mul.Tensor'"
            )
        return name


def _is_operator(node: Node) -> bool:
    """Return whether a node calls an operator that returns tensors."""
    returns = isinstance(node.meta.get("val"), torch.Tensor | tuple | list)
    return returns and isinstance(aten_target(node), OpOverload)


def _exported_names(node: Node) -> list[str]:
    """Return a node's names in the exported programs that it comes from, the first program's last.

    After a strict export, the names of Dynamo's graph would follow; they are omitted. In a branch,
    torch does not record which names belong to a program, so all names count.
    """
    sources = list(_sources(node))
    passes = [source.pass_name for source in sources]
    if _PROGRAM in passes or _DYNAMO in passes:
        sources = [source for source in sources if source.pass_name == _PROGRAM]
    return [str(source.name) for source in sources]


def _operator_names(node: Node) -> Iterator[str]:
    """Return names such as ``aten.mul`` and ``aten.mul.Tensor`` of a node and of its origins."""
    target = aten_target(node)
    texts = [str(source.target) for source in _sources(node)]
    if isinstance(target, OpOverload):
        texts.append(f"{target._schema.name.replace('::', '.')}.{target._overloadname}")
    for text in texts:
        packet, _, overload = text.rpartition(".")
        if "." in packet:
            # The Edge dialect has aten.view_copy for aten.view.
            for each in {packet, packet.removesuffix("_copy")}:
                yield each
                yield f"{each}.{overload}"


def _node_names(node: Node, subgraph: Subgraph) -> Iterator[str]:
    """Return a node's names in the Edge and exported programs, also with its branch's path."""
    for name in {node.name, *_exported_names(node)}:
        yield name
        yield subgraph.name_of(name)
    parts = subgraph.path.split("/")
    yield from ("/".join(parts[:end]) for end in range(1, len(parts) + 1) if subgraph.path)


def _sources(node: Node) -> Iterator[Any]:
    """Return the nodes that a node was made from, the latest first."""
    sources: Any = node.meta.get("from_node")
    while sources:
        yield sources[0]
        sources = sources[0].from_node


def _nearest(name: str, known: Collection[str], prefix: str = "") -> str:
    near = get_close_matches(name, sorted(known), n=_SHOWN, cutoff=0.5)
    return f"; near it: {', '.join(prefix + each for each in near)}" if near else ""


def _exists(name: str) -> bool:
    attribute: object = torch.ops
    for part in name.split("."):
        attribute = getattr(attribute, part, None)
        if attribute is None:
            return False
    return isinstance(attribute, OpOverload | OpOverloadPacket)
