"""Attention: which is quantized, and how it is written out so that both of its products are."""

from __future__ import annotations

import math
from typing import Any, Final

import torch
from torch.fx import GraphModule, Node
from torchao.quantization.pt2e.quantizer import QuantizationConfig

from trt_et.graph.arguments import named_arguments
from trt_et.graph.insertion import insert_call
from trt_et.graph.operators import HALF_FLOATS

aten = torch.ops.aten

_META: Final = ("nn_module_stack", "stack_trace", "source_fn_stack")


def is_better_whole(node: Node, config: QuantizationConfig) -> bool:
    """Return whether an attention is better in its dtype: in half precision, in an int8 model.

    TensorRT-RTX 1.6 fuses an attention in half precision, and one in fp8, into one kernel; few in
    int8. Three attentions of 197 tokens, with their linear layers in int8, are 19 kernels and 2.0
    MB that move if they stay in half, 37 and 4.8 MB in int8; a ViT's in int8 end the build. In
    float32, int8 is better.
    """
    spec = config.input_activation
    is_half = node.meta["val"].dtype in HALF_FLOATS
    return is_half and spec is not None and spec.dtype is torch.int8


def write_out_attention(model: GraphModule, node: Node) -> list[Node]:
    """Replace a call of ``scaled_dot_product_attention``; return the two products made of it."""
    given = named_arguments(node)
    new: list[Node] = []

    def call(operator: Any, *args: Any, **kwargs: Any) -> Node:  # noqa: ANN401
        made = insert_call(node, operator, *args, **kwargs)
        made.meta |= {name: node.meta[name] for name in _META if name in node.meta}
        new.append(made)
        return made

    query, key, value = given["query"], given["key"], given["value"]
    if given["enable_gqa"]:
        heads = query.meta["val"].shape[-3]
        key, value = (
            call(aten.repeat_interleave.self_int, each, heads // each.meta["val"].shape[-3], -3)
            for each in (key, value)
        )
    width = query.meta["val"].shape[-1]
    scale = 1 / math.sqrt(width) if given["scale"] is None else float(given["scale"])
    first = call(aten.matmul.default, query, call(aten.transpose.int, key, -2, -1))
    scores = call(aten.mul.Tensor, first, scale)
    mask, softmax = given["attn_mask"], aten.softmax.int
    if given["is_causal"]:
        mask = call(aten.tril.default, call(aten.ones_like.default, scores, dtype=torch.bool))
    elif mask is not None:
        softmax = aten._safe_softmax.default  # A query may see no key.
    if mask is not None and mask.meta["val"].dtype is torch.bool:
        hidden = call(aten.logical_not.default, mask)
        scores = call(aten.masked_fill.Scalar, scores, hidden, -math.inf)
    elif mask is not None:
        scores = call(aten.add.Tensor, scores, mask)
    weights = call(softmax, scores, -1)
    second = call(aten.matmul.default, weights, value)
    node.replace_all_uses_with(second)
    model.graph.erase_node(node)
    return [first, second]
