"""``max`` and ``min`` along a dimension, with the indices; ``amax`` and ``amin`` along several."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor
from torch.fx import Node

from trt_et.conversion.operator import Operator
from trt_et.conversion.operators.adaptive_avg_pool import is_convolved
from trt_et.graph.arguments import named_arguments
from trt_et.graph.insertion import insert_call
from trt_et.graph.symbolic_shapes import is_static

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
