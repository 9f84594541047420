"""Calls put into a graph, with what they give."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Node

__all__ = ["insert_call", "insert_number"]


def insert_call(before: Node, target: Any, *args: Any, **kwargs: Any) -> Node:  # noqa: ANN401
    """Insert a call in front of a node, its ``val`` computed from those of its arguments.

    Args:
        before: A node whose value is a fake tensor, or several.
        target: The operator.
        args: Its arguments.
        kwargs: Likewise; no nodes.
    """
    graph = before.graph
    with graph.inserting_before(before):
        node = graph.call_function(target, args, kwargs)
    value: Any = before.meta["val"]
    with (value[0] if isinstance(value, tuple | list) else value).fake_mode:
        values = torch.fx.map_arg(args, lambda argument: argument.meta["val"])
        node.meta["val"] = target(*values, **kwargs)
    return node


def insert_number(before: Node, target: Any, *args: Any) -> Node:  # noqa: ANN401
    """Insert a call that computes a number from numbers, some of them symbolic.

    Args:
        before: The node that it goes in front of.
        target: The function, such as ``operator.add``.
        args: Its arguments.
    """
    with before.graph.inserting_before(before):
        node = before.graph.call_function(target, args)
    node.meta["val"] = target(*torch.fx.map_arg(args, lambda argument: argument.meta["val"]))
    return node
