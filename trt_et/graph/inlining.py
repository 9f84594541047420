"""Replace a call of an operator by the operators that a Python function calls."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx

from trt_et.graph.insertion import fake_mode_of
from trt_et.graph.marks import inherit_marks
from trt_et.graph.tracing import unchanged_symbols


def trace_call(
    node: Node,
    function: Any,  # noqa: ANN401
    decompositions: Mapping[Any, Callable[..., Any]] | None = None,
) -> GraphModule | None:
    """Trace a function with the arguments of a call.

    The decompositions are applied to the operators that it calls.

    Returns:
        A module whose placeholders are the call's ``all_input_nodes``; None if an argument is
        neither a tensor nor a size.

    Raises:
        Exception: The function asks for the value of a symbolic size. An answer would make the
            size a number in the caller's program, which shares its symbols.
    """
    inputs = node.all_input_nodes
    values = [argument.meta.get("val") for argument in inputs]
    if not all(isinstance(value, torch.Tensor | torch.SymInt) for value in values):
        return None
    # A constructor has no tensor arguments, but its result has the fake mode.
    mode = fake_mode_of((*inputs, node)) or FakeTensorMode()

    def call(*flat: torch.Tensor | torch.SymInt) -> Any:  # noqa: ANN401
        known = dict(zip(inputs, flat, strict=True))
        args, kwargs = torch.fx.map_arg((node.args, node.kwargs), known.__getitem__)
        return function(*args, **kwargs)

    with mode, unchanged_symbols(mode):
        return make_fx(call, decomposition_table=dict(decompositions or {}))(*values)


def insert_traced(
    owner: GraphModule, node: Node, traced: GraphModule, constants: str = "_"
) -> list[Node]:
    """Replace a call of a module by its function from ``trace_call``; return the new calls.

    ``constants`` is the prefix of the names that the function's constants get.
    """
    new: dict[Node, Node] = {}
    placeholders = iter(node.all_input_nodes)
    graph = owner.graph
    result: Any = None
    with graph.inserting_before(node):
        for part in traced.graph.nodes:
            if part.op == "placeholder":
                new[part] = next(placeholders)
            elif part.op == "get_attr":
                name = f"{constants}{node.name}_{part.target}"
                owner.register_buffer(name, getattr(traced, str(part.target)))
                new[part] = graph.get_attr(name)
                new[part].meta = dict(part.meta)
            elif part.op == "output":
                result = torch.fx.map_arg(part.args[0], new.__getitem__)
            else:
                new[part] = graph.node_copy(part, new.__getitem__)
                inherit_marks(new[part], node)
    if isinstance(result, Node):
        node.replace_all_uses_with(result)
    else:
        for user in list(node.users):
            if user.target is not operator.getitem:
                raise TypeError(f"{user.name} takes all results of {node.name} at once")
            user.replace_all_uses_with(result[user.args[1]])
            graph.erase_node(user)
    graph.erase_node(node)
    return [part for part in new.values() if part.op == "call_function"]


def inline(graph_owner: GraphModule, node: Node, function: Callable[..., Any]) -> None:
    """Replace a call of a module by the operators that a function of its arguments calls."""
    traced = trace_call(node, function)
    if traced is None:
        raise TypeError(f"{node.name} has an argument that is neither a tensor nor a size")
    insert_traced(graph_owner, node, traced)
