"""Compute with pairs of real numbers in place of complex ones.

Neither ExecuTorch nor TensorRT computes with complex numbers. Rotary embeddings of some language
models do, between real inputs and real results. Here a complex tensor becomes its
``view_as_real``, which has one more dimension, of size 2.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch
from torch.export import ExportedProgram
from torch.fx import Graph, Node

from trt_et.graph.arguments import named_arguments
from trt_et.graph.insertion import insert_call
from trt_et.graph.marks import inherit_marks
from trt_et.graph.subgraphs import edited

aten = torch.ops.aten

# Writes a call in real numbers before it: the call, and its arguments, with pairs for complex ones.
Edit = Callable[[Node, dict[str, Any]], Node]

_ASSERTION: Final = aten._assert_tensor_metadata.default
_CONVERSIONS: Final = frozenset({aten.to.dtype_layout, aten.to.dtype})


def use_real_numbers(program: ExportedProgram) -> ExportedProgram:
    """Replace complex numbers, if every operator that makes or uses them is known."""
    calls = [node for node in program.graph.nodes if _concerns(node)]
    return edited(program, _replace) if calls and all(map(_is_known, calls)) else program


def is_complex(node: Any) -> bool:  # noqa: ANN401
    """Return whether a node is a complex tensor."""
    value = node.meta.get("val") if isinstance(node, Node) else None
    return isinstance(value, torch.Tensor) and value.is_complex()


def _concerns(node: Node) -> bool:
    return is_complex(node) or any(map(is_complex, node.all_input_nodes))


def _is_known(node: Node) -> bool:
    if node.target in _CONVERSIONS:
        (source,) = node.all_input_nodes
        return bool(node.meta["val"].dtype == source.meta["val"].dtype)
    if node.target is _ASSERTION:
        return True
    given = [*node.args, *node.kwargs.values()]
    return node.target in _EDITS and not any(isinstance(each, complex) for each in given)


def _replace(graph: Graph) -> None:
    pairs: dict[Node, Node] = {}
    calls = [node for node in graph.nodes if _concerns(node)]
    for node in calls:
        if node.target is _ASSERTION:
            continue
        given = torch.fx.map_arg(named_arguments(node), lambda each: pairs.get(each, each))
        pairs[node] = _EDITS.get(node.target, _itself)(node, given)
        inherit_marks(pairs[node], node)
        if not is_complex(node):
            node.replace_all_uses_with(pairs[node])
    outputs = graph.output_node().all_input_nodes
    for node in reversed(calls):
        name = node.name
        graph.erase_node(node)
        if node in pairs and pairs[node] in outputs:
            pairs[node].name = name


def _polar(node: Node, given: dict[str, Any]) -> Node:
    parts = [
        insert_call(node, aten.mul.Tensor, given["abs"], insert_call(node, part, given["angle"]))
        for part in (aten.cos.default, aten.sin.default)
    ]
    return _pair(node, *parts)


def _complex(node: Node, given: dict[str, Any]) -> Node:
    return _pair(node, given["real"], given["imag"])


def _pair(node: Node, real: Node, imaginary: Node) -> Node:
    return insert_call(node, aten.stack.default, [real, imaginary], -1)


def _product(node: Node, given: dict[str, Any]) -> Node:
    """Write out a product, of which a factor may be real, or a number."""
    names = ("self", "other")
    factors = [given[name] for name in names]
    are_complex = [is_complex(named_arguments(node)[name]) for name in names]
    if all(are_complex):
        (a, b), (c, d) = (
            [insert_call(node, aten.select.int, pair, -1, index) for index in (0, 1)]
            for pair in factors
        )
        products = ((a, c), (b, d), (a, d), (b, c))
        ac, bd, ad, bc = (insert_call(node, aten.mul.Tensor, *each) for each in products)
        real = insert_call(node, aten.sub.Tensor, ac, bd)
        return _pair(node, real, insert_call(node, aten.add.Tensor, ad, bc))
    factors = [
        insert_call(node, aten.unsqueeze.default, factor, -1)
        if isinstance(factor, Node) and not is_pair
        else factor
        for factor, is_pair in zip(factors, are_complex, strict=True)
    ]
    return insert_call(node, aten.mul.Tensor, *factors)


def _along_dimension(node: Node, given: dict[str, Any]) -> Node:
    target: Any = node.target
    return insert_call(node, target, **{**given, "dim": given["dim"] - (given["dim"] < 0)})


def _itself(node: Node, given: dict[str, Any]) -> Node:
    """Return the pairs; a copy if they are an output, which has a name of its own."""
    same: Node = given["self"]
    is_output = any(user.op == "output" for user in node.users)
    return insert_call(node, aten.alias.default, same) if is_output else same


_EDITS: Final[dict[Any, Edit]] = {
    aten.polar.default: _polar,
    aten.complex.default: _complex,
    aten.mul.Tensor: _product,
    aten.unsqueeze.default: _along_dimension,
    aten.slice.Tensor: _along_dimension,
    aten.select.int: _along_dimension,
    aten.view_as_complex.default: _itself,
    aten.view_as_real.default: _itself,
}
