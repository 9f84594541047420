"""Joins linear layers of one input whose results are viewed as heads: query, key and value.

TensorRT-RTX 1.6 computes three layers in one kernel of products and three of biases, reshapes and
transposes. One layer with the joined weight takes one of each, and moves the same bytes: four
blocks of a transformer have 32 kernels in place of 40. The form decides: heads come first and are
then split, since a split of the last dimension is taken apart again. Layers without heads (gate and
up of a gated layer) keep the same number of kernels, so they stay.
"""

from __future__ import annotations

from typing import Any, Final

import torch
from torch.fx import Node

from trt_et.conversion.operator import Operator
from trt_et.graph.arguments import named_arguments
from trt_et.graph.insertion import insert_call, insert_constant, insert_size

aten = torch.ops.aten

_VIEWS: Final = frozenset({aten.view.default, aten.reshape.default, aten._unsafe_view.default})
_DEQUANTIZE: Final = torch.ops.quantized_decomposed.dequantize_per_channel.default


def join_heads(node: Node) -> Node | None:
    """Replace a linear layer and the later ones with its input by one; return its result."""
    source = node.args[0]
    size = _head_size(node)
    if not isinstance(source, Node) or size is None or source.meta["val"].dim() < 2:
        return None
    layers = [user for user in source.users if user.target is node.target]
    layers = [each for each in layers if each.args[0] is source and _head_size(each) == size]
    if len(layers) < 2 or layers[0] is not node:
        return None
    joined = _joined_layer(node, layers)
    if joined is None:
        return None
    rank = source.meta["val"].dim() - 1
    lead = [insert_size(node, source, dim) for dim in range(rank)]
    heads = [each.meta["val"].shape[-1] // size for each in layers]
    heads_first = [*range(rank - 1), rank, rank - 1, rank + 1]
    whole = insert_call(node, aten.reshape.default, joined, [*lead, sum(heads), size])
    whole = insert_call(node, aten.permute.default, whole, heads_first)
    results, begin = [], 0
    for number in heads:
        part = insert_call(node, aten.slice.Tensor, whole, rank - 1, begin, begin + number)
        part = insert_call(node, aten.permute.default, part, heads_first)
        results.append(insert_call(node, aten.reshape.default, part, [*lead, number * size]))
        begin += number
    for layer, result in zip(layers[1:], results[1:], strict=True):
        layer.replace_all_uses_with(result)
    return results[0]


def _head_size(node: Node) -> int | None:
    """Return the last size of the views of a layer's result; None if it is used otherwise."""
    length = node.meta["val"].shape[-1]
    sizes = {user.meta["val"].shape[-1] if user.target in _VIEWS else length for user in node.users}
    size = sizes.pop() if len(sizes) == 1 else length
    is_head = isinstance(size, int) and size < length and length % size == 0
    return size if is_head else None


def _joined_layer(node: Node, layers: list[Node]) -> Node | None:
    given = [named_arguments(layer) for layer in layers]
    weight = _joined(node, [each["weight"] for each in given], "weight")
    if weight is None:
        return None
    biases = [each["bias"] for each in given]
    bias = None
    if any(each is not None for each in biases):
        bias = _joined(node, biases, "bias", [layer.meta["val"].shape[-1] for layer in layers])
        if bias is None:
            return None
    return insert_call(node, node.target, node.args[0], weight, bias)


def _joined(
    node: Node, parts: list[Any], name: str, lengths: list[int] | None = None
) -> Node | None:
    """Return the constants of all layers as one; a missing bias is zeros."""
    if all(isinstance(part, Node) and part.target is _DEQUANTIZE for part in parts):
        return _joined_quantized(node, parts)
    values: list[torch.Tensor | None] = [_attribute(part) for part in parts]
    known = [value for value in values if value is not None]
    missing = [part is None for part in parts]
    if len(known) + sum(missing) != len(parts) or len({value.dtype for value in known}) != 1:
        return None
    filled = [
        known[0].new_zeros(length) if value is None else value
        for value, length in zip(values, lengths or [0] * len(values), strict=True)
    ]
    return insert_constant(node, f"_{node.name}_joined_{name}", torch.cat(filled))


def _joined_quantized(node: Node, parts: list[Node]) -> Node | None:
    """Join weights of eight bits with scales of each channel."""
    first = parts[0]
    options = first.args[3:], first.kwargs
    if first.args[3] != 0 or any((p.args[3:], p.kwargs) != options for p in parts):
        return None
    names = ("input", "scales", "zero_points")
    joined = [_joined(node, [p.args[i] for p in parts], name) for i, name in enumerate(names)]
    if None in joined:
        return None
    return insert_call(node, _DEQUANTIZE, *joined, *first.args[3:], **first.kwargs)


def _attribute(part: Any) -> torch.Tensor | None:  # noqa: ANN401
    if not isinstance(part, Node) or part.op != "get_attr":
        return None
    value = getattr(part.graph.owning_module, str(part.target))
    return value if isinstance(value, torch.Tensor) else None


JOINED_HEADS: Final = Operator("joined heads", (aten.linear.default,), rewrite=join_heads)
