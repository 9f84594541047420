"""Insert calls with their values into a graph."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Node

__all__ = ["compute_value", "insert_call", "insert_constant", "insert_number"]


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
    compute_value(node, before)
    return node


def compute_value(node: Node, beside: Node) -> None:
    """Compute the ``val`` of a call from its arguments' values.

    Args:
        node: The call.
        beside: A node of the graph whose value is one or several fake tensors.
    """
    target: Any = node.target
    # A write in place to a tensor that shares memory with a weight is refused otherwise.
    with torch.no_grad(), _fake_mode(beside):
        args, kwargs = torch.fx.map_arg((node.args, node.kwargs), lambda each: each.meta["val"])
        node.meta["val"] = target(*args, **kwargs)


def insert_constant(before: Node, name: str, value: torch.Tensor) -> Node:
    """Register a tensor as a buffer of the graph's module, and insert a node that reads it.

    Args:
        before: A node whose value is one or several fake tensors.
        name: The buffer's name, which the module has not.
        value: The tensor.
    """
    module: Any = before.graph.owning_module
    module.register_buffer(name, value)
    with before.graph.inserting_before(before):
        node = before.graph.get_attr(name)
    node.meta["val"] = _fake_mode(before).from_tensor(value)
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


def _fake_mode(node: Node) -> Any:  # noqa: ANN401
    value: Any = node.meta["val"]
    return (value[0] if isinstance(value, tuple | list) else value).fake_mode
