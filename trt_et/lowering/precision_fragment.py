"""Rewrites a fragment for a precision, so that a support check converts what will be built."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch.fx import Graph, Node

from trt_et.graph.fragment import Fragment
from trt_et.lowering.precision import insert_casts

__all__ = ["in_precision"]


def in_precision(fragment: Fragment, precision: torch.dtype, low: Collection[Node]) -> Fragment:
    """Return a copy of a fragment in which some calls compute in a lower precision.

    Args:
        fragment: Not changed; its inputs and outputs keep their dtypes.
        precision: ``torch.float16`` or ``torch.bfloat16``.
        low: The calls that compute in it.

    Returns:
        The copy: its calls have the names of the calls that they are copies of. The values of
        constants in the precision count as unknown.
    """
    copied = _Copy(fragment)
    insert_casts(copied, precision, {copied.nodes[node] for node in low})
    return copied.fragment()


class _Copy:
    """A copy of a fragment's graph.

    Args:
        fragment: Not changed.

    Attributes:
        graph: Its calls, with a placeholder for each source and an output node.
        values: Fake values of its constants.
        nodes: Nodes of the fragment to their copies.
    """

    def __init__(self, fragment: Fragment) -> None:
        self.graph = Graph()
        self.nodes: dict[Node, Node] = {}
        for source in fragment.sources:
            new = self.graph.placeholder(source.name)
            new.meta["val"] = source.meta["val"]
            self.nodes[source] = new
        for call in fragment.calls:
            new = self.graph.node_copy(call, self.nodes.__getitem__)
            new.name = call.name
            self.nodes[call] = new
        self.graph.output(tuple(self.nodes[call] for call in fragment.outputs))
        self._known: dict[Node, torch.Tensor | None] = {
            self.nodes[source]: fragment.constants[source]
            for source in fragment.sources
            if source in fragment.constants
        }
        self.values: Mapping[Node, torch.Tensor] = {
            node: node.meta["val"]
            for node in self._known
            if isinstance(node.meta["val"], torch.Tensor)
        }

    def add_constant(self, like: Node, suffix: str, value: torch.Tensor, fake: Any) -> Node:  # noqa: ANN401
        """Add a constant of an unknown value; see ``EditableProgram.add_constant``."""
        with self.graph.inserting_after(like):
            node = self.graph.placeholder(f"{like.name}_{suffix}")
        node.meta["val"] = fake
        self._known[node] = None
        return node

    def fragment(self) -> Fragment:
        """Return the changed fragment."""
        calls = tuple(node for node in self.graph.nodes if node.op == "call_function")
        results: Any = self.graph.output_node().args[0]
        # An output must be a call; a graph of moves may return one twice.
        return Fragment(calls, tuple(dict.fromkeys(results)), self._known)
