"""Operators on tensors of fewer dimensions than TensorRT's layers have.

Torch-TensorRT 2.13 passes the tensors unchanged. TensorRT then fails to build, or, for attention in
three dimensions, takes them for packed tokens.
"""

from __future__ import annotations

from typing import Any, Final

import torch
from torch.fx import Node

from trt_et.conversion.operator import Operator
from trt_et.graph.insertion import insert_call

aten = torch.ops.aten

# The least number of dimensions that the layer takes, and the index of the argument that is one.
_RANKS: Final[dict[Any, tuple[int, int | None]]] = {
    aten.scaled_dot_product_attention.default: (4, None),
    aten.avg_pool2d.default: (4, None),
    aten.avg_pool3d.default: (5, None),
    aten.max_pool2d.default: (4, None),
    aten.max_pool3d.default: (5, None),
    aten._softmax.default: (2, 1),
    aten.softmax.int: (2, 1),
    aten.topk.default: (2, 2),
    aten.sort.default: (2, 1),
    aten.argmax.default: (2, 1),
    aten.argmin.default: (2, 1),
}

# Their layers take no tensors without dimensions.
_OF_LINES: Final = (aten.where.self, aten.gather.default)
# These reduce nothing if the tensor has no dimensions.
_REDUCTIONS: Final = (
    *(aten.sum.default, aten.sum.dim_IntList, aten.mean.default, aten.mean.dim),
    *(aten.prod.default, aten.prod.dim_int, aten.amax.default, aten.amin.default),
    *(aten.max.default, aten.min.default),
    *(aten.any.default, aten.any.dim, aten.any.dims),
)


def unsqueeze(node: Node) -> Node | None:
    """Unsqueeze the arguments, and squeeze the results."""
    if node.target in _RANKS:
        return _widen(node)
    if node.target is aten.index_select.default:
        source, dim, index = node.args
        if isinstance(source, Node) and source.meta["val"].dim() == 0:
            return source  # It has only one element.
        if isinstance(index, Node) and index.meta["val"].dim() == 0:
            node.args = (source, dim, insert_call(node, aten.reshape.default, index, [1]))
        return None
    return _compute_numbers(node) if _has_numbers_only(node) else None


def _has_numbers_only(node: Node) -> bool:
    return all(tensor.meta["val"].dim() == 0 for tensor in (node, *node.all_input_nodes))


def _compute_numbers(node: Node) -> Node:
    dtype = node.meta["val"].dtype
    if node.target in _REDUCTIONS:
        return insert_call(node, aten._to_copy.default, node.args[0], dtype=dtype)
    lines = (
        insert_call(node, aten.reshape.default, argument, [1])
        if isinstance(argument, Node)
        else argument
        for argument in node.args
    )
    line = insert_call(node, node.target, *lines, **node.kwargs)
    return insert_call(node, aten.reshape.default, line, [])


def _widen(node: Node) -> Node | None:
    number = 4 if node.target is aten.scaled_dot_product_attention.default else 1
    ranks = [a.meta["val"].dim() for a in node.args[:number] if isinstance(a, Node)]
    rank, position = _RANKS[node.target]
    missing = rank - ranks[0]
    if missing <= 0 or len(set(ranks[:3])) > 1 or _has_no_dimension(node):
        return None
    arguments = [
        _repeated(node, aten.unsqueeze.default, argument, missing)
        if isinstance(argument, Node) and index < number
        else argument
        for index, argument in enumerate(node.args)
    ]
    if position is not None and position < len(arguments):
        dim: Any = arguments[position]
        if ranks[0] == 0:
            dim = -1  # After unsqueezing, the only one.
        arguments[position] = dim + missing if dim >= 0 else dim
    if isinstance(node.meta["val"], torch.Tensor):
        result = insert_call(node, node.target, *arguments, **node.kwargs)
        return _repeated(node, aten.squeeze.dim, result, missing)
    node.args = tuple(arguments)
    old = node.meta["val"]
    node.meta["val"] = tuple(value.reshape([1] * missing + list(value.shape)) for value in old)
    for user in list(node.users):
        # A number picks one of the results.
        picked: Any = user.args[1]
        others = list(user.users)
        user.meta["val"] = node.meta["val"][picked]
        with node.graph.inserting_after(user):
            narrow = node.graph.call_function(aten.squeeze.dim, (user, 0))
        narrow.meta["val"] = old[picked]
        for other in others:
            other.replace_input_with(user, narrow)
    return None


def _has_no_dimension(node: Node) -> bool:
    """Check whether a node searches the flattened tensor."""
    is_search = node.target in (aten.argmax.default, aten.argmin.default)
    return is_search and (len(node.args) < 2 or node.args[1] is None)


def _repeated(before: Node, target: Any, tensor: Node, number: int) -> Node:  # noqa: ANN401
    """Insert calls that each add or drop the first dimension."""
    for _ in range(number):
        tensor = insert_call(before, target, tensor, 0)
    return tensor


MIN_RANK: Final = Operator(
    "operators on tensors of few dimensions",
    (*_RANKS, *_OF_LINES, *_REDUCTIONS, aten.index_select.default),
    rewrite=unsqueeze,
)
