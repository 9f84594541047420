"""Replaces negative indices, which count from the end, by indices from 0 on.

TensorRT takes negative indices in one layer only: a gather along a dimension of static size
(``IGatherLayer`` in its ``NvInfer.h``). Torch-TensorRT 2.13 passes them unchanged to scatters and
to gathers along dynamic dimensions. From several indices it computes one number, so that
``x[[0], [-1]]`` picks from the last row.
"""

from __future__ import annotations

from typing import Any, Final

import torch
from torch.fx import GraphModule, Node

from trt_et.graph.insertion import insert_call

__all__ = ["normalize_negative_indices"]

aten = torch.ops.aten

_GATHERS: Final = (aten.index.Tensor, aten._unsafe_index.Tensor)
_SCATTERS: Final = (aten.index_put.default, aten._unsafe_index_put.default)
_INTEGERS: Final = (torch.int32, torch.int64)


def normalize_negative_indices(module: GraphModule) -> None:
    """Add the size to negative indices that TensorRT does not count from the end.

    Args:
        module: Plain ATen, with ``val`` metadata; changed in place.
    """
    for node in list(module.graph.nodes):
        if node.target in _GATHERS or node.target in _SCATTERS:
            _normalize(module, node)
    module.recompile()


def _normalize(module: GraphModule, node: Node) -> None:
    source, indices = node.args[0], list(node.args[1])  # type: ignore[arg-type]
    given = [(dim, index) for dim, index in enumerate(indices) if index is not None]
    if not isinstance(source, Node) or not all(
        isinstance(index, Node) and index.meta["val"].dtype in _INTEGERS for _, index in given
    ):
        return  # A mask indexes several dimensions.
    sizes = source.meta["val"].shape
    if node.target in _GATHERS and len(given) == 1 and isinstance(sizes[given[0][0]], int):
        return
    for dim, index in given:
        indices[dim] = _normalized(module, node, source, dim, index)
    node.args = (source, indices, *node.args[2:])


def _normalized(module: GraphModule, node: Node, source: Node, dim: int, index: Node) -> Node:
    if index.op == "get_attr" and bool((getattr(module, str(index.target)) >= 0).all()):
        return index
    size: Any = source.meta["val"].shape[dim]
    if not isinstance(size, int):
        size = insert_call(node, aten.sym_size.int, source, dim)
    wrapped = insert_call(node, aten.add.Tensor, index, size)
    negative = insert_call(node, aten.lt.Scalar, index, 0)
    return insert_call(node, aten.where.self, negative, wrapped, index)
