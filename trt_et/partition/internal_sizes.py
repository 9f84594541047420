"""Sizes that a partition computes itself.

Decomposition reads sizes off tensors in the middle of a program (to flatten them, say). Computed
outside of the engines, such a size would part the tensor that it is read off from what it is for:
a delegate cannot take a number that is computed from its own result.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Final

import torch
from torch.fx import Graph, Node

__all__ = ["inner_sizes", "is_size", "misplaced_sizes"]

_OF_TENSORS: Final = torch.ops.aten.sym_size.int
_OF_SIZES: Final = (operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod)


def is_size(node: Node) -> bool:
    """Whether a node computes a size in a way that an engine can, too."""
    return node.op == "call_function" and (
        node.target is _OF_TENSORS
        or (node.target in _OF_SIZES and isinstance(node.meta.get("val"), int | torch.SymInt))
    )


def inner_sizes(graph: Graph, is_supported: Callable[[Node], bool]) -> set[Node]:
    """The sizes that only supported nodes use, directly or through other such sizes.

    Args:
        graph: In topological order; not changed.
        is_supported: Whether an engine can hold a node.
    """
    found: set[Node] = set()
    for node in reversed(graph.nodes):
        if is_size(node) and all(is_supported(user) or user in found for user in node.users):
            found.add(node)
    return {node for node in found if node.users}


def misplaced_sizes(groups: Sequence[Sequence[Node]]) -> set[Node]:
    """The sizes that their group does not have all for itself: users, and what they come from.

    A tensor of which a group needs nothing but a size should not become an input of an engine.
    """
    misplaced: set[Node] = set()
    for nodes in groups:
        inside = set(nodes)
        taken = {s for node in nodes if not is_size(node) for s in node.all_input_nodes}
        for node in filter(is_size, nodes):
            sources = inside | taken if node.target is _OF_TENSORS else inside
            if not (inside.issuperset(node.users) and sources.issuperset(node.all_input_nodes)):
                misplaced.add(node)
    return misplaced
