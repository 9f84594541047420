"""Rewrites around attentions whose build ends the process in TensorRT-RTX 1.5 (SIGSEGV).

Its compiler fuses an attention with adjacent layers, and crashes in two cases:

- the product that scales a query (or a product that is a key or a value) has other uses, and a size
  is dynamic: ``attention(q, a, a) + attention(q, b, b)``;
- a reshape splits or merges the tokens of an attention of batch 1 with static sizes, and a layer
  and a sum follow: ``x + linear(attention(...).reshape(1, H, W, C))``.

An unsqueeze and a squeeze between the two prevent the fusion. They cost nothing and change no
number.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.fx import GraphModule, Node

from trt_et.graph.insertion import insert_call

__all__ = ["separate_attention_inputs", "separate_attention_results"]

aten = torch.ops.aten

_ATTENTION = aten.scaled_dot_product_attention.default
_MULTIPLY = aten.mul.Tensor
_SCALED = (aten.mul.Tensor, aten.mul.Scalar, aten.div.Tensor, aten.div.Scalar)
_PRODUCTS = (aten.matmul.default, aten.bmm.default)
_SOFTMAX = (aten._softmax.default, aten.softmax.int)
_MOVES = (
    *(aten.permute.default, aten.transpose.int, aten.clone.default, aten.expand.default),
    *(aten.view.default, aten.reshape.default, aten.dropout.default, aten._to_copy.default),
)
_RESHAPES = (aten.view.default, aten.reshape.default)


def separate_attention_inputs(module: GraphModule) -> None:
    """Scale a query that has other uses before its attentions, and separate it from them.

    Also separate products that are queries, keys or values.

    Args:
        module: Plain ATen, with ``val`` metadata; changed in place.
    """
    separated: dict[tuple[Node, float], Node] = {}
    for node in list(module.graph.nodes):
        if node.target is not _ATTENTION:
            continue
        for index, source in enumerate(node.args[:3]):
            is_shared_query = index == 0 and len(source.users) > 1
            if not _is_dynamic_float(source) or not (is_shared_query or source.target in _SCALED):
                continue
            scale = _scale(node) if index == 0 else 1.0
            if (source, scale) not in separated:
                scaled = source if scale == 1.0 else insert_call(node, _MULTIPLY, source, scale)
                separated[source, scale] = _separate(node, scaled)
            node.update_arg(index, separated[source, scale])
            if index == 0:
                node.update_kwarg("scale", 1.0)
    module.recompile()


def separate_attention_results(module: GraphModule) -> None:
    """Separate an attention from the layers after a reshape that splits or merges its tokens.

    Args:
        module: Plain ATen, with ``val`` metadata; changed in place.
    """
    for node in list(module.graph.nodes):
        if node.target in _RESHAPES and _regroups_tokens(node):
            reshaped = insert_call(node, node.target, *node.args, **node.kwargs)
            node.replace_all_uses_with(_separate(node, reshaped))
            module.graph.erase_node(node)
    module.recompile()


def _separate(before: Node, node: Node) -> Node:
    wide = insert_call(before, aten.unsqueeze.default, node, 0)
    return insert_call(before, aten.squeeze.dim, wide, 0)


def _is_dynamic_float(node: Node) -> bool:
    value = node.meta.get("val")
    return (
        isinstance(value, torch.Tensor)
        and value.dtype is torch.float32
        and isinstance(value.shape[-1], int)
        and not all(isinstance(size, int) for size in value.shape)
    )


def _scale(attention: Node) -> float:
    scale: Any = attention.kwargs.get("scale")
    width: int = attention.args[0].meta["val"].shape[-1]  # type: ignore[union-attr]
    return 1 / math.sqrt(width) if scale is None else float(scale)


def _regroups_tokens(node: Node) -> bool:
    """Check whether a node statically reshapes an attention's result to other than (1, tokens)."""
    attention = _attention_behind(node.args[0])
    if attention is None:
        return False
    value, result = node.meta["val"], attention.meta["val"]
    sizes: list[Any] = [*value.shape, *result.shape]
    if not all(isinstance(size, int) for size in sizes) or result.dim() < 3 or value.dim() < 2:
        return False
    tokens, width = result.shape[-2], result.shape[-1]
    one_batch = result.numel() == math.prod(result.shape[-3:])
    merges_heads = value.shape[-1] == width * result.shape[-3]
    return one_batch and merges_heads and tuple(value.shape[:-1]) != (1, tokens)


def _attention_behind(node: Any) -> Node | None:  # noqa: ANN401
    """Return the attention whose result reaches this node by moves alone."""
    source = _moved_from(node)
    if source is None or source.target is _ATTENTION:
        return source
    if source.target in _PRODUCTS:
        weights = _moved_from(source.args[0])
        if weights is not None and weights.target in _SOFTMAX:
            return source
    return None


def _moved_from(node: Any) -> Node | None:  # noqa: ANN401
    while isinstance(node, Node) and node.target in _MOVES:
        node = node.args[0]
    return node if isinstance(node, Node) else None
