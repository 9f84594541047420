"""Finds the nodes of an exported module that are computed from parameters and constants only."""

from __future__ import annotations

from typing import Any

import torch
from torch._ops import OpOverload
from torch.fx import GraphModule, Node, map_arg
from torchao.quantization.pt2e.utils import getattr_from_fqn


class Constants:
    """The constants of a module as ``ExportedProgram.module()`` returns it.

    A buffer that the program writes to, such as a KV cache, is none.

    Args:
        model: The module.
    """

    def __init__(self, model: GraphModule) -> None:
        self._model = model
        self._nodes: set[Node] = set()
        for node in model.graph.nodes:
            if self._is_constant(node):
                self._nodes.add(node)

    def __contains__(self, node: Node) -> bool:
        return node in self._nodes

    def _is_constant(self, node: Node) -> bool:
        if any(map(_writes, node.users)):
            return False
        if node.op == "get_attr":
            return isinstance(getattr_from_fqn(self._model, str(node.target)), torch.Tensor)
        sources = node.all_input_nodes
        is_operator = node.op == "call_function" and isinstance(node.target, OpOverload)
        return is_operator and bool(sources) and self._nodes.issuperset(sources)


def constant_value(model: GraphModule, node: Node) -> Any:  # noqa: ANN401
    """Return the value of a constant of a module."""
    if node.op == "get_attr":
        return getattr_from_fqn(model, str(node.target))
    args, kwargs = map_arg(
        (node.args, dict(node.kwargs)), lambda source: constant_value(model, source)
    )
    with torch.no_grad():
        return node.target(*args, **kwargs)  # type: ignore[operator]


def _writes(node: Node) -> bool:
    return isinstance(node.target, OpOverload) and node.target._schema.is_mutable
