"""Rename the nodes of partitions, so that equal partitions become equal engines.

The names in a partition's graph depend on its position in the program, and the engine contains them
(bindings, layers). Without new names, the engines of two equal partitions would differ, and
ExecuTorch, which stores equal bytes once, would store both.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch._ops import OpOverload
from torch.export.graph_signature import ExportGraphSignature, InputSpec, OutputSpec
from torch.fx import Graph, Node, map_arg


@dataclass(frozen=True)
class Canonical:
    """A graph and its signature under canonical names.

    Attributes:
        graph: The same nodes, with only ``val`` of their ``meta``: the rest depends on the position
            in the program. The used outputs of a node come right after it.
        signature: Its signature.
        names: Canonical node name to the original name.
        targets: Canonical name of a constant to its target (its name in the model).
    """

    graph: Graph
    signature: ExportGraphSignature
    names: dict[str, str]
    targets: dict[str, str]

    def values(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return a dictionary of state or constants under the canonical names."""
        return {new: _frozen(values[old]) for new, old in self.targets.items() if old in values}


def canonical(graph: Graph, signature: ExportGraphSignature, users: Collection[str]) -> Canonical:
    """Rename inputs ``input0``.., constants ``constant0``.., and nodes ``<operator>_<n>``.

    ``users`` has the names of the placeholders that are user inputs.
    """
    counts: Counter[str] = Counter()
    new: dict[Node, Node] = {}
    renamed = Graph()
    for node in _in_order(graph):
        if node.op == "placeholder":
            base = "input" if node.name in users else "constant"
            name = f"{base}{counts[base]}"
        elif node.op == "output":
            base = name = "output"
        else:
            base = _operator(node)
            name = f"{base}_{counts[base]}"
        counts[base] += 1
        args, kwargs = map_arg((node.args, node.kwargs), new.__getitem__)
        # A placeholder's target is its name; other targets are operators.
        target = name if node.op == "placeholder" else node.target
        new[node] = renamed.create_node(node.op, target, args, kwargs, name)
        if "val" in node.meta:
            new[node].meta["val"] = node.meta["val"]
    renamed.lint()
    by_old = {old.name: node.name for old, node in new.items()}
    by_target: dict[str, str] = {}
    for spec in signature.input_specs:
        if spec.target is not None:
            by_target.setdefault(spec.target, by_old[spec.arg.name])
    targets = {name: old for old, name in by_target.items()}
    changed = ExportGraphSignature(
        input_specs=[_renamed(spec, by_old, by_target) for spec in signature.input_specs],
        output_specs=[_renamed(spec, by_old, by_target) for spec in signature.output_specs],
    )
    names = {node.name: old.name for old, node in new.items()}
    return Canonical(renamed, changed, names, targets)


def _in_order(graph: Graph) -> Iterator[Node]:
    """Yield the nodes, the used outputs of a node right after it, as ``torch.export.load`` does."""
    for node in graph.nodes:
        if node.target is not operator.getitem:
            yield node
            picks = [n for n in node.users if n.target is operator.getitem and n.users]
            yield from sorted(picks, key=lambda pick: pick.args[1])


def _frozen(value: Any) -> Any:  # noqa: ANN401
    """Detach a tensor: a builder that traces would otherwise track and store gradients."""
    if isinstance(value, torch.nn.Parameter):
        return torch.nn.Parameter(value.detach(), requires_grad=False)
    return value


def _operator(node: Node) -> str:
    """Return a short name of a node's operator: ``add`` for ``aten.add.Tensor``."""
    if isinstance(node.target, OpOverload):
        return str(node.target._schema.name).rpartition("::")[2]
    return str(getattr(node.target, "__name__", node.target))


def _renamed(
    spec: InputSpec | OutputSpec, names: Mapping[str, str], targets: Mapping[str, str]
) -> Any:  # noqa: ANN401
    argument = str(getattr(spec.arg, "name", ""))
    arg = replace(spec.arg, name=names[argument]) if argument in names else spec.arg
    target = targets.get(spec.target, spec.target) if spec.target is not None else None
    return replace(spec, arg=arg, target=target)
