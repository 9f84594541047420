"""Attention masks with rows that mask every key.

Torch returns zeros for such a query. A softmax over no element is NaN, and TensorRT does not
document what its attention returns. The first tokens of a prompt that is padded on the left are
such queries; a NaN there would reach every other token through the next layer's keys and values.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.fx import GraphModule, Node

from trt_et.graph.insertion import insert_call

__all__ = ["zero_fully_masked_rows"]

aten = torch.ops.aten


def zero_fully_masked_rows(module: GraphModule) -> None:
    """Let fully masked queries attend to every key, and set their results to 0.

    Args:
        module: Plain ATen, with ``val`` metadata, constants as attributes; changed in place.
    """
    for node in list(module.graph.nodes):
        if node.target is not aten.scaled_dot_product_attention.default:
            continue
        mask: Any = node.args[3] if len(node.args) > 3 else node.kwargs.get("attn_mask")
        if isinstance(mask, Node) and not _has_no_fully_masked_row(module, mask):
            _zero_masked_rows(node, mask)
    module.recompile()


def _has_no_fully_masked_row(module: GraphModule, mask: Node) -> bool:
    if mask.op != "get_attr":
        return False
    value = module.get_buffer(str(mask.target))
    return bool(_seen(value).any(-1).all())


def _seen(mask: torch.Tensor) -> torch.Tensor:
    return mask if mask.dtype == torch.bool else mask > -math.inf


def _zero_masked_rows(node: Node, mask: Node) -> None:
    def call(operator: Any, *args: Any, **kwargs: Any) -> Node:  # noqa: ANN401
        return insert_call(node, operator, *args, **kwargs)

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
    result = call(node.target, *args, **kwargs)
    node.replace_all_uses_with(call(aten.where.self, sees, result, zero(result)))
    node.graph.erase_node(node)
