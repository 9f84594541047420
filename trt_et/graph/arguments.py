"""Read the arguments and the effects of calls."""

from __future__ import annotations

from typing import Any

from torch._ops import HigherOrderOperator, OpOverload
from torch.fx import Node


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
