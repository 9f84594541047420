"""Find the module of the model that a node comes from."""

from __future__ import annotations

from torch.fx import Node

__all__ = ["module_of"]


def module_of(node: Node) -> str:
    """Return the path of the innermost module that called the operator; empty if unknown."""
    stack = node.meta.get("nn_module_stack") or {}
    return next((str(path) for path, _ in reversed(stack.values())), "")
