"""Attention: constant arguments, causal masks, masked rows, and crashes of TensorRT-RTX's builder.

The compiler of TensorRT-RTX 1.5 fuses an attention with adjacent layers, and its build ends the
process (SIGSEGV) in two cases (1.6: in the first):

- the product that scales a query (or a product that is a key or a value) has other uses, and a size
  is dynamic: ``attention(q, a, a) + attention(q, b, b)``;
- a reshape splits or merges the tokens of an attention of batch 1 with static sizes, and a layer
  and a sum follow: ``x + linear(attention(...).reshape(1, H, W, C))``.

An unsqueeze and a squeeze between the two prevent the fusion. They cost nothing and change no
number.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any, Final

import torch
from torch.fx import Node

from trt_et.conversion.layers import Layers
from trt_et.conversion.operator import Operator
from trt_et.graph.arguments import named_arguments
from trt_et.graph.constants import constant_value
from trt_et.graph.insertion import insert_call, insert_size
from trt_et.graph.operators import ATTENTION as _ATTENTION
from trt_et.graph.operators import BATCH_PRODUCTS, HALF_FLOATS, MOVES, RESHAPES, SOFTMAX
from trt_et.graph.symbolic_shapes import is_static, shape_range

aten = torch.ops.aten

_MULTIPLY = aten.mul.Tensor
_SCALED = (aten.mul.Tensor, aten.mul.Scalar, aten.div.Tensor, aten.div.Scalar)
_MOVES = MOVES - {aten.unsqueeze.default} | {
    *(aten.expand.default, aten.dropout.default, aten._to_copy.default),
}
_SEPARATED = "trt_et_separated"
# With more elements, the attention layer is better: it skips the half that a causal mask hides.
_LARGEST_MASK: Final = 512 * 512


def add_attention(layers: Layers, args: Any, kwargs: Any) -> Any:  # noqa: ANN401
    """Add the layers of Torch-TensorRT's converter, with the arguments and the masks that it needs.

    It passes constants to the layer unchanged (first queries of DETR). Torch-TensorRT 2.14 aligns
    the last query with the last key; in torch, each query sees the keys up to its index, as in
    2.13. They differ if there are more queries than keys, or fewer.
    """
    trt, net = layers.trt, layers.net
    first = net.num_layers
    arguments = [
        layers.tensor(argument, f"argument{index}")
        if isinstance(argument, torch.Tensor)
        else argument
        for index, argument in enumerate(args)
    ]
    result = layers.convert(arguments, kwargs)
    for index in range(first, net.num_layers):
        layer = net.get_layer(index)
        if layer.type.name != "ATTENTION_INPUT":  # TensorRT 10 lacks this layer.
            continue
        layer.__class__ = trt.IAttentionInputLayer
        if layer.attention.causal_kind == trt.CausalMaskKind.LOWER_RIGHT:
            layer.attention.causal_kind = trt.CausalMaskKind.UPPER_LEFT
    return result


def repeat_shared_heads(node: Node) -> None:
    """Repeat the keys and values that several heads of queries share (``enable_gqa=True``).

    TensorRT 11 documents that its attention shares them, which would read less memory. No GPU has
    shown that yet; TensorRT 10 has no attention layer.
    """
    named = named_arguments(node)
    if not named["enable_gqa"]:
        return
    heads = named["query"].meta["val"].shape[-3]
    for place, name in ((1, "key"), (2, "value")):
        node.update_arg(place, _with_heads(heads, named[name], node))
    node.kwargs = {name: value for name, value in node.kwargs.items() if name != "enable_gqa"}


def _with_heads(heads: int, source: Node, before: Node) -> Node:
    call = partial(insert_call, before)
    shape = source.meta["val"].shape
    axis = len(shape) - 3
    if shape[axis] == heads:
        return source
    sizes = [insert_size(before, source, dim) for dim in range(len(shape))]
    groups = [-1] * len(shape)
    groups.insert(axis + 1, heads // shape[axis])
    repeated = call(aten.unsqueeze.default, source, axis + 1)
    repeated = call(aten.expand.default, repeated, groups)
    sizes[axis] = heads
    return call(aten.reshape.default, repeated, sizes)


def zero_fully_masked_rows(node: Node) -> Node | None:
    """Let queries whose keys are all masked attend to every key, and return 0 for them, as torch.

    A softmax over no element is NaN, and TensorRT does not document what its attention returns. The
    first tokens of a prompt that is padded on the left are such queries; a NaN there would reach
    every other token through the next layer's keys and values.
    """
    mask = named_arguments(node)["attn_mask"]
    if not isinstance(mask, Node) or _has_no_fully_masked_row(mask):
        return None
    call = partial(insert_call, node)

    def zero(like: Node) -> Node:
        return call(aten.full.default, [], 0.0, dtype=like.meta["val"].dtype)

    best = call(aten.amax.default, mask, [-1], True)
    if mask.meta["val"].dtype == torch.bool:
        sees = best
        new_mask = call(aten.logical_or.default, mask, call(aten.logical_not.default, sees))
    else:
        sees = call(aten.gt.Scalar, best, -math.inf)
        new_mask = call(aten.where.self, sees, mask, zero(mask))
    kwargs = {name: value for name, value in node.kwargs.items() if name != "attn_mask"}
    args = (*node.args[:3], new_mask, *node.args[4:])
    result = call(_ATTENTION, *args, **kwargs)
    return call(aten.where.self, sees, result, zero(result))


def _has_no_fully_masked_row(mask: Node) -> bool:
    value = constant_value(mask)
    if value is None:
        return False
    seen = value if value.dtype == torch.bool else value > -math.inf
    return bool(seen.any(-1).all())


def write_out(node: Node) -> Node | None:
    """Write out an attention in half precision, in torch's own order.

    TensorRT-RTX 1.6 fuses both into one kernel, and copies values and results of its attention
    layer: a ViT of 6 blocks has 53 kernels in place of 59. In float32 it fuses the layer only.
    Where it finds the sum of scores and a boolean mask, it lists the keys that the mask shows, in 7
    kernels; a choice of scores, and the sum of a mask and scores, are in the kernel.
    """
    named = named_arguments(node)
    query, key, value, mask = (named[name] for name in ("query", "key", "value", "attn_mask"))
    dtype = query.meta["val"].dtype
    if dtype not in HALF_FLOATS:
        return None
    call = partial(insert_call, node)
    if named["is_causal"]:
        largest = [shape_range(each.meta["val"].shape[-2])[2] for each in (query, key)]
        if math.prod(largest) > _LARGEST_MASK:
            return None
        rows, columns = (
            call(aten.arange.start_step, 0, insert_size(node, each, -2)) for each in (query, key)
        )
        mask = call(aten.ge.Tensor, call(aten.unsqueeze.default, rows, 1), columns)
    root = math.sqrt(_scale(node))
    keys = call(_MULTIPLY, _transposed(node, key), root)
    scores = call(aten.matmul.default, call(_MULTIPLY, query, root), keys)
    if mask is not None and mask.meta["val"].dtype == torch.bool:
        hidden = call(aten.full.default, [], -math.inf, dtype=dtype)
        scores = call(aten.where.self, mask, scores, hidden)
    elif mask is not None:
        scores = call(aten.add.Tensor, mask, scores)
    weights = call(aten._softmax.default, scores, -1, False)
    if mask is not None and not (named["is_causal"] or _has_no_fully_masked_row(mask)):
        # The fused kernel includes this form of zero_fully_masked_rows(): 0 for a row of NaN.
        zero = call(aten.full.default, [], 0.0, dtype=dtype)
        weights = call(aten.where.self, call(aten.isnan.default, weights), zero, weights)
    return call(aten.matmul.default, weights, value)


def _transposed(node: Node, key: Node) -> Node:
    """Return the transposed keys; with dynamic sizes, as a tensor of three dimensions in between.

    A ViT with a dynamic batch has 38 kernels in this form, as by TensorRT-RTX's ONNX parser, which
    gets the same; 46 if the permutation has four dimensions, and 42 with the attention layer.
    """
    call = partial(insert_call, node)
    last = key.meta["val"].dim() - 1
    if is_static(key):
        return call(aten.permute.default, key, [*range(last - 1), last, last - 1])
    *others, length, width = (insert_size(node, key, dim) for dim in range(last + 1))
    flat = call(aten.reshape.default, key, [-1, length, width])
    flat = call(aten.permute.default, flat, [0, 2, 1])
    return call(aten.reshape.default, flat, [*others, width, length])


def add_isnan(layers: Layers, args: Any, kwargs: Any) -> Any:  # noqa: ANN401
    """Add TensorRT's layer; Torch-TensorRT compares the tensor with itself.

    With two dynamic sizes, TensorRT-RTX 1.6 fuses the masked attention of ``write_out`` only with
    this layer: BERT has 43 kernels in place of 67.
    """
    source = layers.tensor(args[0], "input")
    floats = (layers.trt.float32, layers.trt.float16, layers.trt.bfloat16)
    if source.dtype not in floats:
        return layers.convert(args, kwargs)
    layer = layers.net.add_unary(source, layers.trt.UnaryOperation.ISNAN)
    return layers.result(layer, "isnan")


def separate_inputs(node: Node) -> None:
    """Scale a query that has other uses before its attentions, and separate it from them.

    Also separate products that are queries, keys or values.
    """
    for index in range(3):
        source: Any = node.args[index]
        if not _is_dynamic_float(source):
            continue
        is_shared_query = index == 0 and len(source.users) > 1
        if _SEPARATED in source.meta or not (is_shared_query or source.target in _SCALED):
            continue
        scale = _scale(node) if index == 0 else 1.0
        scaled = source if scale == 1.0 else insert_call(node, _MULTIPLY, source, scale)
        separated = _separate(node, scaled)
        separated.meta[_SEPARATED] = True
        # The attentions that follow share it.
        for user in [user for user in source.users if user.target is _ATTENTION]:
            for place in range(3) if source.target in _SCALED else (0,):
                if user.args[place] is source and (1.0 if place else _scale(user)) == scale:
                    user.update_arg(place, separated)
                    if place == 0:
                        user.update_kwarg("scale", 1.0)


def separate_results(node: Node) -> Node | None:
    """Separate an attention from the layers after a reshape that splits or merges its tokens."""
    if not _regroups_tokens(node):
        return None
    return _separate(node, insert_call(node, node.target, *node.args, **node.kwargs))


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
    scale = named_arguments(attention)["scale"]
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
    if source.target in BATCH_PRODUCTS:
        weights = _moved_from(source.args[0])
        if weights is not None and weights.target in SOFTMAX - {aten._safe_softmax.default}:
            return source
    return None


def _moved_from(node: Any) -> Node | None:  # noqa: ANN401
    while isinstance(node, Node) and node.target in _MOVES:
        node = node.args[0]
    return node if isinstance(node, Node) else None


SHARED_HEADS: Final = Operator("shared heads", (_ATTENTION,), rewrite=repeat_shared_heads)
ATTENTION: Final = Operator(
    "attention", (_ATTENTION,), rewrite=zero_fully_masked_rows, add_layer=add_attention
)
WRITTEN_OUT_ATTENTION: Final = Operator(
    "written out attention", (_ATTENTION,), rewrite=write_out, library="tensorrt_rtx"
)
IS_NAN: Final = Operator("isnan", (aten.isnan.default,), add_layer=add_isnan)
ATTENTION_INPUTS: Final = Operator(
    "inputs of attentions",
    (_ATTENTION,),
    rewrite=separate_inputs,
    library="tensorrt_rtx",
    upstream="rtx_attention_crash",
)
ATTENTION_RESULTS: Final = Operator(
    "results of attentions",
    RESHAPES,
    rewrite=separate_results,
    library="tensorrt_rtx",
    fixed_in=("tensorrt-rtx", "1.6"),
    upstream="rtx_attention_crash",
)
