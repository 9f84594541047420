"""``log_softmax`` without the softmax.

Torch-TensorRT 2.13 takes the logarithm of the softmax, which is 0 if an element is far below the
largest (by 17 in float16, by 104 in float32): the result is minus infinity, not about that
difference.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import GraphModule, Node

from trt_et.graph.insertion import insert_call

__all__ = ["expand_log_softmax"]

aten = torch.ops.aten


def expand_log_softmax(module: GraphModule) -> None:
    """Write ``log_softmax`` as the number less the logarithm of the sum of exponentials.

    Half precision is computed in float32, as torch does it.

    Args:
        module: Plain ATen, with ``val`` metadata; changed in place.
    """
    for node in list(module.graph.nodes):
        if node.target in (aten._log_softmax.default, aten.log_softmax.int):
            _write_out(node)
    module.recompile()


def _write_out(node: Node) -> None:
    def call(operator: Any, *args: Any, **kwargs: Any) -> Node:  # noqa: ANN401
        return insert_call(node, operator, *args, **kwargs)

    source, dim = node.args[:2]
    exact = call(aten._to_copy.default, source, dtype=torch.float32)
    less = call(aten.sub.Tensor, exact, call(aten.amax.default, exact, [dim], True))
    total = call(aten.sum.dim_IntList, call(aten.exp.default, less), [dim], True)
    result = call(aten.sub.Tensor, less, call(aten.log.default, total))
    dtype = node.meta["val"].dtype
    node.replace_all_uses_with(call(aten._to_copy.default, result, dtype=dtype))
    node.graph.erase_node(node)
