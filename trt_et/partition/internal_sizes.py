"""Finds sizes that a partition can compute itself.

Decompositions read sizes off intermediate tensors (to flatten them, for example). If the CPU
computed such a size, its tensor and its users could not be in one partition: a delegate cannot take
a number that depends on its own result.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Final

import torch
from torch.fx import Graph, Node

from trt_et.graph.size_expressions import ShownSizes

_OF_TENSORS: Final = torch.ops.aten.sym_size.int
_OF_SIZES: Final = (
    operator.add,
    operator.sub,
    operator.mul,
    operator.neg,
    operator.floordiv,
    operator.mod,
    operator.pow,
)


def is_size(node: Node) -> bool:
    """Return whether a node computes a size in a way that an engine also can."""
    if node.op != "call_function" or (node.target is operator.pow and node.args[1] != 2):
        return False
    is_number = isinstance(node.meta.get("val"), int | torch.SymInt)
    return node.target is _OF_TENSORS or (node.target in _OF_SIZES and is_number)


def inner_sizes(graph: Graph, is_supported: Callable[[Node], bool]) -> set[Node]:
    """Return the sizes that only supported nodes use, directly or through other such sizes."""
    inner: set[Node] = set()
    for node in reversed(graph.nodes):
        if is_size(node) and all(is_supported(user) or user in inner for user in node.users):
            inner.add(node)
    return {node for node in inner if node.users}


def misplaced_sizes(groups: Sequence[Sequence[Node]]) -> set[Node]:
    """Return the sizes with a user or an input outside their group.

    A tensor should not become an engine's input only for its size. ExecuTorch computes no powers
    of sizes, so what is computed from one may take sizes from outside that the inputs show.
    """
    misplaced: set[Node] = set()
    for nodes in groups:
        inside = set(nodes)
        taken = {s for node in nodes if not is_size(node) for s in node.all_input_nodes}
        of_powers: set[Node] = set()
        for node in filter(is_size, nodes):
            sources = inside | taken if node.target is _OF_TENSORS else inside
            if node.target is operator.pow or not of_powers.isdisjoint(node.all_input_nodes):
                of_powers.add(node)
                shown = ShownSizes(taken - inside)
                outside = set(node.all_input_nodes) - inside
                sources = sources | {s for s in outside if shown.show(s.meta.get("val"))}
            if not (inside.issuperset(node.users) and sources.issuperset(node.all_input_nodes)):
                misplaced.add(node)
    return misplaced


def nodes_without_sizes(nodes: list[Node]) -> list[Node]:
    """Return the nodes of a partition that take a size that no input tensor has."""
    inside = set(nodes)
    outside = {source for node in nodes for source in node.all_input_nodes} - inside
    shown = ShownSizes(outside)
    return [
        node
        for node in nodes
        if not all(
            source in inside or shown.show(source.meta.get("val"))
            for source in node.all_input_nodes
        )
    ]
