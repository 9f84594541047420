"""Operators on tensors of fewer dimensions than TensorRT's layers have.

Torch-TensorRT 2.13 passes the tensors unchanged. TensorRT then fails to build, or, for attention in
three dimensions, takes them for packed tokens.
"""

from __future__ import annotations

from typing import Any, Final

import torch
from torch.fx import GraphModule, Node

from trt_et.graph.insertion import insert_call

__all__ = ["unsqueeze_to_min_rank"]

aten = torch.ops.aten

# The least number of dimensions that the layer takes.
_RANKS: Final[dict[Any, int]] = {
    aten.scaled_dot_product_attention.default: 4,
    aten.avg_pool2d.default: 4,
    aten.max_pool2d.default: 4,
    aten._softmax.default: 2,
    aten.softmax.int: 2,
    aten.topk.default: 2,
    aten.sort.default: 2,
    aten.argmax.default: 2,
    aten.argmin.default: 2,
}
# The index of the argument that is their dimension.
_DIMS: Final[dict[Any, int]] = {
    aten._softmax.default: 1,
    aten.softmax.int: 1,
    aten.topk.default: 2,
    aten.sort.default: 1,
    aten.argmax.default: 1,
    aten.argmin.default: 1,
}

# Their layers take no tensors without dimensions.
_OF_LINES: Final = (aten.where.self, aten.atan2.default, aten.gather.default)
# These reduce nothing if the tensor has no dimensions.
_REDUCTIONS: Final = (
    *(aten.sum.default, aten.sum.dim_IntList, aten.mean.default, aten.mean.dim),
    *(aten.prod.default, aten.prod.dim_int, aten.amax.default, aten.amin.default),
    *(aten.max.default, aten.min.default),
    *(aten.any.default, aten.any.dim, aten.any.dims),
)


def unsqueeze_to_min_rank(module: GraphModule) -> None:
    """Unsqueeze the arguments of such operators, and squeeze their results.

    Args:
        module: Plain ATen, with ``val`` metadata; changed in place.
    """
    for node in list(module.graph.nodes):
        if node.target in (*_OF_LINES, *_REDUCTIONS) and _has_numbers_only(node):
            _compute_numbers(node)
        elif node.target in _RANKS:
            _widen(node)
        elif node.target is aten.index_select.default:
            source, dim, index = node.args
            if isinstance(source, Node) and source.meta["val"].dim() == 0:
                node.replace_all_uses_with(source)  # It has only one element.
            elif isinstance(index, Node) and index.meta["val"].dim() == 0:
                node.args = (source, dim, insert_call(node, aten.reshape.default, index, [1]))
        elif node.target is aten.repeat.default:
            source, repeats = node.args
            missing = len(repeats) - source.meta["val"].dim()
            if missing > 0:  # 2.14 reshapes by shape, with a -1 for each dynamic dimension.
                node.args = (_with_dimensions(node, source, missing), repeats)
        elif node.target is aten.convolution.default:
            _deconvolve_in_two_dimensions(node)
    module.graph.eliminate_dead_code()
    module.recompile()


def _has_numbers_only(node: Node) -> bool:
    return all(tensor.meta["val"].dim() == 0 for tensor in (node, *node.all_input_nodes))


def _compute_numbers(node: Node) -> None:
    dtype = node.meta["val"].dtype
    if node.target in _REDUCTIONS:
        result = insert_call(node, aten._to_copy.default, node.args[0], dtype=dtype)
    else:
        lines = (
            insert_call(node, aten.reshape.default, argument, [1])
            if isinstance(argument, Node)
            else argument
            for argument in node.args
        )
        line = insert_call(node, node.target, *lines, **node.kwargs)
        result = insert_call(node, aten.reshape.default, line, [])
    node.replace_all_uses_with(result)


def _widen(node: Node) -> None:
    number = 4 if node.target is aten.scaled_dot_product_attention.default else 1
    ranks = [a.meta["val"].dim() for a in node.args[:number] if isinstance(a, Node)]
    missing = _RANKS[node.target] - ranks[0]
    if missing <= 0 or len(set(ranks[:3])) > 1 or _has_no_dimension(node):
        return
    arguments = [
        _with_dimensions(node, argument, missing)
        if isinstance(argument, Node) and index < number
        else argument
        for index, argument in enumerate(node.args)
    ]
    position = _DIMS.get(node.target)
    if position is not None and position < len(arguments):
        dim: Any = arguments[position]
        if ranks[0] == 0:
            dim = -1  # After unsqueezing, the only one.
        arguments[position] = dim + missing if dim >= 0 else dim
    if isinstance(node.meta["val"], torch.Tensor):
        result = insert_call(node, node.target, *arguments, **node.kwargs)
        node.replace_all_uses_with(_without_dimensions(node, result, missing))
        return
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


def _has_no_dimension(node: Node) -> bool:
    """Check whether a node searches the flattened tensor."""
    return node.target in (aten.argmax.default, aten.argmin.default) and node.args[1:2] in (
        (),
        (None,),
    )


def _deconvolve_in_two_dimensions(node: Node) -> None:
    """Widen a transposed 1-D convolution with a computed weight; converters widen constant ones."""
    x, weight, bias, stride, padding, dilation, transposed, extra, groups = node.args
    if not transposed or not isinstance(x, Node) or not isinstance(weight, Node):
        return
    if x.meta["val"].dim() != 3 or weight.op == "get_attr":
        return
    window: tuple[Any, ...] = (stride, padding, dilation)
    stride, padding, dilation, extra = (
        [*sizes, neutral] for sizes, neutral in zip((*window, extra), (1, 0, 1, 0), strict=True)
    )
    x, weight = (insert_call(node, aten.unsqueeze.default, tensor, -1) for tensor in (x, weight))
    wide = insert_call(
        node, node.target, x, weight, bias, stride, padding, dilation, True, extra, groups
    )
    node.replace_all_uses_with(insert_call(node, aten.squeeze.dim, wide, -1))


def _with_dimensions(before: Node, tensor: Node, number: int) -> Node:
    for _ in range(number):
        tensor = insert_call(before, aten.unsqueeze.default, tensor, 0)
    return tensor


def _without_dimensions(before: Node, tensor: Node, number: int) -> Node:
    for _ in range(number):
        tensor = insert_call(before, aten.squeeze.dim, tensor, 0)
    return tensor
