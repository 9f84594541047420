"""Taking one call of an operator apart, in place, where it stands in a graph."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx import GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx

__all__ = ["inline"]


def inline(graph_owner: GraphModule, node: Node, function: Callable[..., Any]) -> None:
    """Put what a function does, traced, in the place of a node.

    Args:
        graph_owner: The node's module; changed in place.
        node: A call; the values of its tensors are in ``meta["val"]``.
        function: Takes the arguments of the call, and returns what it does.
    """
    tensors = node.all_input_nodes
    values = [tensor.meta["val"] for tensor in tensors]
    fakes = [v for v in (*values, node.meta.get("val")) if isinstance(v, FakeTensor)]
    mode = fakes[0].fake_mode if fakes else FakeTensorMode()

    def call(*flat: torch.Tensor) -> Any:  # noqa: ANN401
        known = dict(zip(tensors, flat, strict=True))
        args, kwargs = torch.fx.map_arg((node.args, node.kwargs), known.__getitem__)
        return function(*args, **kwargs)

    with mode:
        traced = make_fx(call)(*values)
    new: dict[Node, Node] = {}
    placeholders = iter(tensors)
    graph = graph_owner.graph
    result: Any = None
    with graph.inserting_before(node):
        for part in traced.graph.nodes:
            if part.op == "placeholder":
                new[part] = next(placeholders)
            elif part.op == "get_attr":
                name = f"_{node.name}_{part.target}"
                graph_owner.register_buffer(name, getattr(traced, str(part.target)))
                new[part] = graph.get_attr(name)
                new[part].meta = dict(part.meta)
            elif part.op == "output":
                result = torch.fx.map_arg(part.args[0], new.__getitem__)
            else:
                new[part] = graph.node_copy(part, new.__getitem__)
    if isinstance(result, Node):
        node.replace_all_uses_with(result)
    else:
        for user in list(node.users):
            if user.target is not operator.getitem:
                raise TypeError(f"{user.name} takes all results of {node.name} at once")
            user.replace_all_uses_with(result[user.args[1]])
            graph.erase_node(user)
    graph.erase_node(node)
