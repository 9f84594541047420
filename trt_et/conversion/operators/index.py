"""Negative indices, which count from the end, as indices from 0 on.

TensorRT takes negative indices in one layer only: a gather along a dimension of static size
(``IGatherLayer`` in its ``NvInfer.h``). Torch-TensorRT 2.13 passes them unchanged to scatters and
to gathers along dynamic dimensions. From several indices it computes one number, so that
``x[[0], [-1]]`` picks from the last row. ``index_check.py`` refuses the others.
"""

from __future__ import annotations

from typing import Any, Final

import torch
from torch.fx import Node

from trt_et.conversion.operator import Operator
from trt_et.graph.insertion import insert_call, insert_size
from trt_et.graph.operators import INTEGERS

aten = torch.ops.aten

_GATHERS: Final = (aten.index.Tensor, aten._unsafe_index.Tensor)
_SCATTERS: Final = (aten.index_put.default, aten._unsafe_index_put.default)


def normalize(node: Node) -> None:
    """Add the size to negative indices that TensorRT does not count from the end."""
    source, indices = node.args[0], list(node.args[1])  # type: ignore[arg-type]
    given = [(dim, index) for dim, index in enumerate(indices) if index is not None]
    if not isinstance(source, Node) or not all(
        isinstance(index, Node) and index.meta["val"].dtype in INTEGERS for _, index in given
    ):
        return  # A mask indexes several dimensions.
    sizes = source.meta["val"].shape
    if node.target in _GATHERS and len(given) == 1 and isinstance(sizes[given[0][0]], int):
        return
    for dim, index in given:
        indices[dim] = _normalized(node, source, dim, index)
    node.args = (source, indices, *node.args[2:])


def _normalized(node: Node, source: Node, dim: int, index: Node) -> Node:
    if index.op == "get_attr":
        value: Any = getattr(node.graph.owning_module, str(index.target))
        if bool((value >= 0).all()):
            return index
    return count_from_zero(node, index, insert_size(node, source, dim))


def count_from_zero(before: Node, index: Node, size: Any) -> Node:  # noqa: ANN401
    """Insert calls that add a size to the negative ones among some indices."""
    wrapped = insert_call(before, aten.add.Tensor, index, size)
    negative = insert_call(before, aten.lt.Scalar, index, 0)
    return insert_call(before, aten.where.self, negative, wrapped, index)


INDEX: Final = Operator(
    "index", (*_GATHERS, *_SCATTERS), rewrite=normalize, upstream="negative_indices"
)
