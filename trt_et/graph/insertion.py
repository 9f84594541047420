"""Insert calls with their values into a graph."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Any, Final

import torch
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx import Node
from torch.utils._pytree import tree_leaves

_SIZE: Final = torch.ops.aten.sym_size.int


def insert_call(before: Node, target: Any, *args: Any, **kwargs: Any) -> Node:  # noqa: ANN401
    """Insert a call of an operator, or of a function of numbers such as ``operator.add``.

    Its ``val`` is computed from its arguments' values; a constructor gets the fake mode of the node
    before which it is inserted.
    """
    graph = before.graph
    with graph.inserting_before(before):
        node = graph.call_function(target, args, kwargs)
    compute_value(node, before)
    return node


def compute_value(node: Node, beside: Node) -> None:
    """Compute the ``val`` of a call; a constructor gets the fake mode of a neighbouring node."""
    target: Any = node.target
    mode = fake_mode_of((beside, *node.all_input_nodes)) or contextlib.nullcontext()
    # A write in place to a tensor that shares memory with a weight is refused otherwise. Kernels in
    # C++, such as constant_pad_nd's, would make numbers of symbolic sizes.
    with torch.no_grad(), enable_python_dispatcher(), mode:
        args, kwargs = torch.fx.map_arg((node.args, node.kwargs), lambda each: each.meta["val"])
        node.meta["val"] = target(*args, **kwargs)


def insert_size(before: Node, tensor: Node, dim: int) -> int | Node:
    """Return a size of a tensor; insert a call that reads it if it is dynamic."""
    size: int | torch.SymInt = tensor.meta["val"].shape[dim]
    return size if isinstance(size, int) else insert_call(before, _SIZE, tensor, dim)


def insert_constant(before: Node, name: str, value: torch.Tensor) -> Node:
    """Register a tensor as a new buffer of the graph's module, and insert a node that reads it."""
    module: Any = before.graph.owning_module
    module.register_buffer(name, value)
    with before.graph.inserting_before(before):
        node = before.graph.get_attr(name)
    mode = fake_mode_of([before])
    assert mode is not None
    node.meta["val"] = mode.from_tensor(value, static_shapes=True)
    return node


def fake_mode_of(nodes: Iterable[Node]) -> FakeTensorMode | None:
    """Return the mode of the first fake tensor among the values of nodes; None without one."""
    values = (value for node in nodes for value in tree_leaves(node.meta.get("val")))
    return next((value.fake_mode for value in values if isinstance(value, FakeTensor)), None)
