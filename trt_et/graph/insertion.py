"""Insert calls with their values into a graph."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Node

__all__ = ["insert_call", "insert_number"]


def insert_call(before: Node, target: Any, *args: Any, **kwargs: Any) -> Node:  # noqa: ANN401
    """Insert a call before a node, and compute its ``val`` from its arguments' values.

    Args:
        before: A node whose value is one or several fake tensors.
        target: The operator.
        args: Its arguments.
        kwargs: Its keyword arguments; no nodes.
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
        before: The node after the new call.
        target: The function, such as ``operator.add``.
        args: Its arguments.
    """
    with before.graph.inserting_before(before):
        node = before.graph.call_function(target, args)
    node.meta["val"] = target(*torch.fx.map_arg(args, lambda argument: argument.meta["val"]))
    return node
