"""Read the arguments and the effects of calls."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch._ops import HigherOrderOperator, OpOverload
from torch.fx import Graph, Node
from torch.utils._pytree import tree_leaves

aten = torch.ops.aten

# Outside of core ATen, an operator without an alias in its schema may return a view.
_WITH_OWN_MEMORY: Final = frozenset(
    {aten.conv1d, aten.conv2d, aten.conv3d, aten.batch_norm, aten.instance_norm, aten.group_norm}
    | {aten.conv_transpose1d, aten.conv_transpose2d, aten.conv_transpose3d, aten.layer_norm}
    | {aten.linear, aten.matmul, aten.scaled_dot_product_attention, aten.max_pool2d, aten.softmax}
)


def named_arguments(node: Node) -> dict[str, Any]:
    """Return the arguments of a plain operator's call by the names in its schema, with defaults."""
    target = node.target
    if not isinstance(target, OpOverload):
        raise TypeError(f"{node.name} calls {target}, which is no operator")
    defaults = {each.name: each.default_value for each in target._schema.arguments}
    return {**defaults, **dict(zip(defaults, node.args, strict=False)), **node.kwargs}


def writes_in_place(node: Node) -> bool:
    """Return whether a call writes to one of its arguments."""
    return isinstance(node.target, OpOverload) and node.target._schema.is_mutable


def is_written_between(first: Node, last: Node) -> bool:
    """Return whether a call after ``first``, up to ``last``, may write to a tensor."""
    while first is not last:
        first = first.next
        if isinstance(first.target, HigherOrderOperator) or writes_in_place(first):
            return True
    return False


def written_nodes(graph: Graph) -> set[Node]:
    """Return the nodes whose memory a call may write to."""
    pending = [
        source
        for node in graph.nodes
        if writes_in_place(node) and node.target is not aten.detach_.default
        for source in _written_arguments(node)
    ]
    written: set[Node] = set()
    while pending:
        node = pending.pop()
        if node not in written:
            written.add(node)
            pending.extend([] if has_own_memory(node) else node.all_input_nodes)
    return written


def has_own_memory(node: Node) -> bool:
    """Return whether the result of a call surely shares no memory with an argument."""
    target = node.target
    if not isinstance(target, OpOverload) or target._schema.is_mutable:
        return False
    is_known = torch.Tag.core in target.tags or target.overloadpacket in _WITH_OWN_MEMORY
    return is_known and not any(result.alias_info for result in target._schema.returns)


def _written_arguments(node: Node) -> list[Node]:
    given, target = named_arguments(node), node.target
    assert isinstance(target, OpOverload)
    names = [each.name for each in target._schema.arguments if each.is_write]
    return [n for n in tree_leaves([given[name] for name in names]) if isinstance(n, Node)]
