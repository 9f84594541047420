"""``log_softmax`` without the softmax."""

from __future__ import annotations

from functools import partial
from typing import Final

import torch
from torch.fx import Node

from trt_et.conversion.operator import Operator
from trt_et.graph.insertion import insert_call

__all__ = ["LOG_SOFTMAX"]

aten = torch.ops.aten


def expand(node: Node) -> Node:
    """Return the number less the logarithm of the sum of exponentials, computed in float32.

    Torch-TensorRT 2.13 takes the logarithm of the softmax, which is 0 if an element is far below
    the largest (by 17 in float16, by 104 in float32): the result is minus infinity, not about that
    difference.
    """
    call = partial(insert_call, node)
    source, dim = node.args[:2]
    exact = call(aten._to_copy.default, source, dtype=torch.float32)
    less = call(aten.sub.Tensor, exact, call(aten.amax.default, exact, [dim], True))
    total = call(aten.sum.dim_IntList, call(aten.exp.default, less), [dim], True)
    result = call(aten.sub.Tensor, less, call(aten.log.default, total))
    return call(aten._to_copy.default, result, dtype=node.meta["val"].dtype)


LOG_SOFTMAX: Final = Operator(
    "log_softmax",
    (aten._log_softmax.default, aten.log_softmax.int),
    rewrite=expand,
    upstream="log_softmax",
)
