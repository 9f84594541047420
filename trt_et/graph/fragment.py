"""A part of a graph: the calls that are converted together, their inputs and their outputs."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import torch
from torch.fx import Node


@dataclass(frozen=True)
class Unsupported:
    """Why a fragment cannot go into an engine.

    Attributes:
        reason: Why.
        node: The name of the call that the reason is about; None if no call could be named.
    """

    reason: str
    node: str | None = None


@dataclass(frozen=True)
class Fragment:
    """Calls of one plain ATen graph.

    Attributes:
        calls: The calls, in program order.
        outputs: The calls whose results leave the fragment.
        constants: The nodes outside of the fragment whose values never change, with the value of
            each; None if the value is not known.
    """

    calls: tuple[Node, ...]
    outputs: tuple[Node, ...]
    constants: Mapping[Node, torch.Tensor | None] = field(default_factory=dict)

    @property
    def nodes(self) -> list[Node]:
        """Return the calls, then the nodes outside of the fragment that they take."""
        return [*self.calls, *self.sources]

    @property
    def sources(self) -> list[Node]:
        """Return the nodes outside of the fragment that its calls take, each once."""
        inside = set(self.calls)
        taken = (source for call in self.calls for source in call.all_input_nodes)
        return [source for source in dict.fromkeys(taken) if source not in inside]


SupportCheck = Callable[[Fragment], Unsupported | None]
"""Return why the calls of a fragment cannot go into one engine; None if they can."""


def fragment_of_call(node: Node, constants: Mapping[Node, torch.Tensor | None]) -> Fragment:
    """Return one call with the nodes that pick its results.

    The expansions of its arguments go along: the shape that an argument is expanded from decides
    how some calls are rewritten.
    """
    expanded = [
        source
        for source in node.all_input_nodes
        if source.op == "call_function"
        and source.target is torch.ops.aten.expand.default
        and source not in constants
    ]
    picks = [user for user in node.users if user.target is operator.getitem]
    return Fragment((*expanded, node, *picks), tuple(picks) or (node,), constants)


def fragment_of_group(
    calls: Iterable[Node], constants: Mapping[Node, torch.Tensor | None]
) -> Fragment:
    """Return the fragment of calls in program order that returns what other nodes use."""
    group = tuple(dict.fromkeys(calls))
    inside = set(group)
    returned = (node for node in group if not node.users or not inside.issuperset(node.users))
    outputs = tuple(n for n in returned if isinstance(n.meta.get("val"), torch.Tensor))
    return Fragment(group, outputs, constants)


def constants_among(
    nodes: Iterable[Node], known: Mapping[str, torch.Tensor | None]
) -> dict[Node, torch.Tensor | None]:
    """Return the placeholders among some nodes that have a name of ``known``, with its value."""
    return {n: known[n.name] for n in nodes if n.op == "placeholder" and n.name in known}
