"""Read the arguments of operator calls."""

from __future__ import annotations

from typing import Any

from torch._ops import OpOverload
from torch.fx import Node

__all__ = ["named_arguments"]


def named_arguments(node: Node) -> dict[str, Any]:
    """Return the arguments of an operator call by the names in its schema, with defaults.

    Args:
        node: Calls an ``OpOverload`` (plain, without the Edge dialect's wrapper).
    """
    target = node.target
    if not isinstance(target, OpOverload):
        raise TypeError(f"{node.name} calls {target}, which is no operator")
    found: dict[str, Any] = {}
    for index, argument in enumerate(target._schema.arguments):
        if argument.name in node.kwargs:
            found[argument.name] = node.kwargs[argument.name]
        elif index < len(node.args) and not argument.kwarg_only:
            found[argument.name] = node.args[index]
        else:
            found[argument.name] = argument.default_value
    return found
