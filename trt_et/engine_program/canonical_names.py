"""Rename the nodes of partitions, so that equal partitions become equal engines.

The names in a partition's graph depend on its position in the program, and the engine contains them
(bindings, layers). Without new names, the engines of two equal partitions would differ, and
ExecuTorch, which stores equal bytes once, would store both.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any

from torch._ops import OpOverload
from torch.export.graph_signature import ExportGraphSignature, InputSpec, OutputSpec
from torch.fx import Graph, Node, map_arg

Renamed = tuple[Graph, ExportGraphSignature, dict[str, str], dict[str, str]]


def canonical(graph: Graph, signature: ExportGraphSignature, users: Collection[str]) -> Renamed:
    """Rename inputs ``input0``.., constants ``constant0``.., and nodes ``<operator>_<n>``.

    Args:
        graph: Not changed. Its constants without users are left out: ExecuTorch adds the unused
            weights of a program to the first partition.
        signature: Its signature; it may have inputs that the graph has lost, and its outputs may
            have other names.
        users: The names of the placeholders that are user inputs.

    Returns:
        The same nodes, with only ``val`` of their ``meta``, since the rest depends on the position
        in the program, and the used outputs of a node right after it; their signature; the original
        name of each node; and the target (the name in the model) of each constant, by its new name.
    """
    counts: Counter[str] = Counter()
    new: dict[Node, Node] = {}
    renamed = Graph()
    target_of = {spec.arg.name: spec.target for spec in signature.input_specs}
    constants: dict[str, Node] = {}
    for node in _in_order(graph):
        if node.op == "placeholder":
            if node.name not in users and not node.users:
                continue
            constant = target_of.get(node.name) if node.name not in users else None
            if constant in constants:  # ExecuTorch has copied it for several partitions.
                new[node] = constants[constant]
                continue
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
        if node.op == "placeholder" and constant is not None:
            constants[constant] = new[node]
    renamed.lint()
    by_old = {old.name: node.name for old, node in new.items()}
    first = {node.name: old.name for old, node in reversed(new.items())}
    kept = [spec for spec in signature.input_specs if spec.arg.name in first.values()]
    by_target: dict[str, str] = {}
    for spec in kept:
        if spec.target is not None:
            by_target.setdefault(spec.target, by_old[spec.arg.name])
    targets = {name: old for old, name in by_target.items()}
    results: Any = renamed.output_node().args[0]
    outputs = zip(signature.output_specs, results, strict=True)
    changed = ExportGraphSignature(
        [_renamed(spec, by_old[spec.arg.name], by_target) for spec in kept],
        [_renamed(spec, node.name, by_target) for spec, node in outputs],
    )
    return renamed, changed, {node.name: first[node.name] for node in new.values()}, targets


def _in_order(graph: Graph) -> Iterator[Node]:
    """Yield the nodes, the used outputs of a node right after it, as ``torch.export.load`` does."""
    for node in graph.nodes:
        if node.target is not operator.getitem:
            yield node
            picks = [n for n in node.users if n.target is operator.getitem and n.users]
            yield from sorted(picks, key=lambda pick: pick.args[1])


def _operator(node: Node) -> str:
    """Return a short name of a node's operator: ``add`` for ``aten.add.Tensor``."""
    if isinstance(node.target, OpOverload):
        return str(node.target._schema.name).rpartition("::")[2]
    return str(getattr(node.target, "__name__", node.target))


def _renamed(spec: InputSpec | OutputSpec, name: str, targets: Mapping[str, str]) -> Any:  # noqa: ANN401
    arg = replace(spec.arg, name=name)
    return replace(spec, arg=arg, target=targets.get(spec.target or "", spec.target))
