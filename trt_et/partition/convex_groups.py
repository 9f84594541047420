"""Finds the fewest convex groups of nodes, in time that grows linearly with the graph.

Every supported node gets a level: the number of times that a path from the program's inputs to the
node leaves the supported nodes and returns. The nodes of one level form one group. Such groups are
convex and have no cycles, because a path that leaves a group and returns ends on a higher level.
Fewer groups are impossible, because two levels on one path cannot share a group.

Many nodes fit several levels. Each starts on the lowest and moves to the level of its users if that
reduces the bytes that cross the groups' boundaries.

``torch.fx``'s ``CapabilityBasedPartitioner``, which ExecuTorch's partitioners use, looks for cycles
at each merge of two groups: its time grows with the square of the graph, and it may end with more
groups.
"""

from __future__ import annotations

import math
import operator
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import torch
from torch.fx import Graph, Node

from trt_et.graph.symbolic_shapes import UnboundedDimension, shape_range


def convex_groups(graph: Graph, is_supported: Callable[[Node], bool]) -> list[list[Node]]:
    """Group supported nodes so that fusing every group to one node makes no cycle.

    Args:
        graph: In topological order; not changed.
        is_supported: Whether a ``call_function`` node may be in a group. The ``getitem`` nodes of a
            node with several results are always in its group.

    Returns:
        The nodes of each group, in the graph's order; the groups in the order of their first nodes.
    """
    nodes = list(graph.nodes)
    units = _units(nodes, is_supported)
    levels = _lowest_levels(nodes, units)
    _sink(nodes, units, levels)
    groups: dict[int, list[Node]] = {}
    for node in nodes:
        if node in units:
            groups.setdefault(levels[units[node]], []).append(node)
    return list(groups.values())


def connected(nodes: Iterable[Node]) -> list[list[Node]]:
    """Return the parts of a group that no edge connects."""
    part: dict[Node, list[Node]] = {}
    for node in nodes:
        parts = {
            id(part[source]): part[source] for source in node.all_input_nodes if source in part
        }
        mine, *others = sorted(parts.values(), key=len, reverse=True) or [[]]
        for other in others:
            mine.extend(other)
            part.update(dict.fromkeys(other, mine))
        mine.append(node)
        part[node] = mine
    return list({id(each): each for each in part.values()}.values())


def _units(nodes: list[Node], is_supported: Callable[[Node], bool]) -> dict[Node, Node]:
    """Map each supported node to the node whose level it has: itself, or its ``getitem`` source."""
    units: dict[Node, Node] = {}
    for node in nodes:
        if node.target is operator.getitem:
            source = node.args[0]
            if isinstance(source, Node) and source in units:
                units[node] = units[source]
        elif node.op == "call_function" and is_supported(node):
            units[node] = node
    return units


def _lowest_levels(nodes: list[Node], units: dict[Node, Node]) -> dict[Node, int]:
    """Return the lowest level of each node; for an unsupported node, its users' level."""
    levels: dict[Node, int] = {}
    for node in nodes:
        if units.get(node, node) is not node:
            continue
        behind = 0 if node in units else 1
        levels[node] = max(
            (
                levels[units[source]] + behind if source in units else levels[source]
                for source in node.all_input_nodes
            ),
            default=0,
        )
    return levels


@dataclass
class _Tensor:
    """The cost of a tensor: its bytes, once for its producer's group and once for each consumer's.

    A level of None is outside of the groups.
    """

    size: int
    home: int | None
    users: Counter[int | None] = field(default_factory=Counter)

    def cost(self) -> int:
        elsewhere = len(self.users) - (self.home in self.users)
        if self.home is None:
            return self.size * elsewhere
        return self.size * (elsewhere - (None in self.users) + (elsewhere > 0))

    def move_user(self, old: int, new: int) -> None:
        self.users[old] -= 1
        if not self.users[old]:
            del self.users[old]
        self.users[new] += 1


def _sink(nodes: list[Node], units: dict[Node, Node], levels: dict[Node, int]) -> None:
    """Move nodes to their first user's level if that costs no more; users before sources."""
    tensors: dict[Node, _Tensor] = {}
    for node in nodes:
        tensors[node] = _Tensor(_bytes(node), levels[units[node]] if node in units else None)
        for source in node.all_input_nodes:
            tensors[source].users[levels[units[node]] if node in units else None] += 1
    highest: dict[Node, float] = {}  # For an unsupported node: the highest level of its sources.
    results: dict[Node, list[Node]] = {}
    for node, unit in units.items():
        results.setdefault(unit, []).append(node)
    for node in reversed(nodes):
        if node not in units:
            bounds = (
                levels[units[user]] - 1 if user in units else highest[user] for user in node.users
            )
            highest[node] = min(bounds, default=math.inf)
        elif units[node] is node:
            _sink_one(results[node], units, levels, highest, tensors)


def _sink_one(
    unit: list[Node],
    units: dict[Node, Node],
    levels: dict[Node, int],
    highest: dict[Node, float],
    tensors: dict[Node, _Tensor],
) -> None:
    node = unit[0]
    users = [user for result in unit for user in result.users if units.get(user) is not node]
    old = levels[node]
    new = min((levels[units[user]] for user in users if user in units), default=old)
    if new <= old or any(highest[user] < new for user in users if user not in units):
        return
    touched = [tensors[each] for each in (*unit, *node.all_input_nodes)]
    before = sum(tensor.cost() for tensor in touched)

    def move(old: int, new: int) -> None:
        levels[node] = new
        for result in unit:
            tensors[result].home = new
        for source in node.all_input_nodes:
            tensors[source].move_user(old, new)
        for result in unit[1:]:
            tensors[result.all_input_nodes[0]].move_user(old, new)

    move(old, new)
    if sum(tensor.cost() for tensor in touched) > before:
        move(new, old)


def _bytes(node: Node) -> int:
    """Return the largest size of a node's tensor in bytes; 0 if it has no bound or is no tensor."""
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor):
        return 0
    try:
        sizes = [shape_range(size)[2] for size in value.shape]
    except UnboundedDimension:
        return 0
    return math.prod(sizes) * value.element_size()
