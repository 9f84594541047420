"""Maxima and minima, the largest numbers, variances, cumulative sums."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any, Final

import torch
from torch import Tensor
from torch.fx import Node

from trt_et.conversion.layers import Layers
from trt_et.conversion.operator import Operator
from trt_et.conversion.operators.pooling import is_convolved
from trt_et.graph.arguments import named_arguments
from trt_et.graph.insertion import insert_call
from trt_et.graph.symbolic_shapes import is_static, shape_range

aten = torch.ops.aten


def max_with_indices(x: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """Return the largest values, and the first index of each (int64).

    Torch-TensorRT 2.13 takes the operator only if nothing uses the indices.
    """
    return aten.amax.default(x, [dim], keepdim), aten.argmax.default(x, dim, keepdim)


def min_with_indices(x: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """Return the smallest values, and the first index of each; see ``max_with_indices``."""
    return aten.amin.default(x, [dim], keepdim), aten.argmin.default(x, dim, keepdim)


def merge(node: Node) -> Node | None:
    """Merge a maximum of maxima, as ExecuTorch decomposes ``adaptive_max_pool2d(x, 1)`` to.

    TensorRT-RTX 1.6 makes one kernel of it, and three of two reductions. After a convolution, a
    pooling has 5 kernels and 521 KB to move in place of 6 and 722 KB.
    """
    source: Any = node.args[0]
    rank = node.meta["val"].dim()
    if source.target is not node.target or len(source.users) > 1 or not rank:
        return None
    given = [named_arguments(each) for each in (node, source)]
    if not all(each["keepdim"] for each in given):
        return None
    both = {dim % rank for each in given for dim in each["dim"] or range(rank)}
    source = source.args[0]
    images = node.target is aten.amax.default and rank == 4 and both == {2, 3}
    if images and is_static(source) and is_convolved(source):
        return insert_call(node, aten.max_pool2d.default, source, source.meta["val"].shape[2:])
    return insert_call(node, node.target, source, sorted(both), True)


MAX: Final = Operator("max", (aten.max.dim,), decompose=max_with_indices)
MIN: Final = Operator("min", (aten.min.dim,), decompose=min_with_indices)
EXTREMES: Final = Operator("amax", (aten.amax.default, aten.amin.default), rewrite=merge)


def variance(
    x: Tensor,
    dim: Sequence[int] | None = None,
    *,
    correction: float | None = None,
    keepdim: bool = False,
) -> Tensor:
    """Decompose ``aten.var.correction``, also for dynamic sizes.

    Torch-TensorRT 2.13 asks for the number of elements, which makes a dynamic size static.
    """
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    dims = list(dim or range(x.dim()))
    difference = wide - wide.mean(dims, True)
    number: Any = math.prod(x.shape[d] for d in dims)
    free = torch.full((), number, dtype=wide.dtype) - (1 if correction is None else correction)
    return ((difference * difference).sum(dims, keepdim) / free.clamp(min=0)).to(x.dtype)


VAR: Final = Operator("var", (aten.var.correction,), decompose=variance)


# Half precision adds up in float32, as torch does on a CPU.
_SUMMED_IN: Final = {torch.float16: torch.float32, torch.bfloat16: torch.float32}


def add_cumulative_sum(layers: Layers, args: Any, kwargs: Any) -> Any:  # noqa: ANN401
    """Add the layer of one ``aten.cumsum``.

    Torch-TensorRT makes a loop. TensorRT-RTX 1.5 does not build that loop (1.6 does), and causal
    language models make their masks with cumulative sums.
    """
    trt = layers.trt
    dtype = layers.node.meta["val"].dtype
    summand = layers.tensor(args[0], "input")
    summand = layers.cast(summand, _SUMMED_IN.get(dtype, dtype), "summand")
    if len(summand.shape) > 0:  # A single number is its own sum.
        dim = torch.tensor(args[1] % len(summand.shape), dtype=torch.int32)
        axis = layers.tensor(dim, "axis", min_rank=0)
        layer = layers.net.add_cumulative(summand, axis, trt.CumulativeOperation.SUM, False, False)
        summand = layers.result(layer, "cumulative_sum")
    return layers.cast(summand, dtype, "sum")


CUMSUM: Final = Operator("cumsum", (aten.cumsum.default,), add_layer=add_cumulative_sum)


_LARGEST_K: Final = 3840


def too_many(node: Node) -> str | None:
    """Refuse more than 3,840 elements, which TensorRT's layer does not return."""
    dim: Any = named_arguments(node)["dim"]
    largest = shape_range(node.meta["val"][0].shape[dim])[2] if node.meta["val"][0].dim() else 1
    if largest <= _LARGEST_K:
        return None
    return (
        f"TensorRT's TopK returns {_LARGEST_K:,} elements at most, and this call up to "
        f"{largest:,}; sort or take the top of fewer elements: x.topk({_LARGEST_K})"
    )


def add_topk(layers: Layers, args: Any, kwargs: Any) -> Any:  # noqa: ANN401
    """Add the layer of one ``aten.topk``; Torch-TensorRT 2.14 takes no number that is a size."""
    if isinstance(args[1], int):
        return layers.convert(args, kwargs)
    trt, given = layers.trt, named_arguments(layers.node)
    x = layers.tensor(args[0], "input")
    number = layers.cast(layers.tensor(args[1], "k", min_rank=0), torch.int32, "k_int32")
    shuffle = layers.net.add_shuffle(number)
    shuffle.reshape_dims = ()
    kind = trt.TopKOperation.MAX if given["largest"] else trt.TopKOperation.MIN
    layer = layers.net.add_topk(x, kind, 1, 1 << given["dim"] % len(x.shape))
    layer.set_input(1, layers.result(shuffle, "k"))
    places = layers.cast(layers.result(layer, "topk", 1), torch.int64, "places")
    return layer.get_output(0), places


TOPK: Final = Operator("topk", (aten.topk.default,), unsupported=too_many, add_layer=add_topk)
# Torch-TensorRT takes only results of calls that its converters take.
PICK: Final = Operator(
    "getitem", (operator.getitem,), add_layer=lambda _, args, __: args[0][args[1]]
)


def distances(x: Tensor, y: Tensor, p: float, mode: int | None = None) -> Tensor:
    """Return the distances between rows; Torch-TensorRT 2.14 takes no weights, no dynamic sizes.

    Euclidean distances are a product where eager mode always computes them so
    (``use_mm_for_euclid_dist_if_necessary``: more than 25 rows).
    """
    is_long = any(shape_range(t.shape[-2])[0] > 25 for t in (x, y))
    if p == 2 and (mode == 1 or (mode in (None, 0) and is_long)):
        squares = x.square().sum(-1, True) + y.square().sum(-1, True).mT
        return (squares - 2 * (x @ y.mT)).clamp(min=0).sqrt()
    apart = (x.unsqueeze(-2) - y.unsqueeze(-3)).abs()
    if p == 0:
        return (apart != 0).to(x.dtype).sum(-1)
    if p == 1:
        return apart.sum(-1)
    if p == math.inf:
        return apart.amax(-1)
    return apart.square().sum(-1).sqrt() if p == 2 else apart.pow(p).sum(-1).pow(1 / p)


CDIST: Final = Operator("cdist", (aten._cdist_forward.default,), decompose=distances)
