"""``index_put`` as Torch-TensorRT's converter takes it right: values in their full shape."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch.fx import GraphModule, Node
from torch.fx.experimental.symbolic_shapes import statically_known_true

from trt_et.builders.insertion import insert_call

__all__ = ["state_written_values"]

aten = torch.ops.aten

_INTEGERS: Final = (torch.int32, torch.int64)


def state_written_values(module: GraphModule) -> None:
    """Write out the values of an ``index_put`` with one index, and that index as a list.

    ``cache[:, :, positions] = rows`` reaches an engine with rows of ``[heads, n, width]``, without
    a batch of 1. Torch-TensorRT 2.13 lays values of fewer dimensions than the tensor's over the
    wrong ones: it fails ("Cannot broadcast"), or, where the sizes happen to agree, writes other
    values. It also takes no index without dimensions. With all dimensions it is right.

    Args:
        module: Plain ATen, with ``val`` metadata; changed in place.
    """
    for node in list(module.graph.nodes):
        if node.target is aten.index_put.default and len(node.args) > 2:
            _state(node)
    module.recompile()


def _state(node: Node) -> None:
    source, indices, values, *rest = node.args
    given = [(dim, index) for dim, index in enumerate(indices) if index is not None]  # type: ignore[arg-type]
    if len(given) != 1 or not isinstance(values, Node) or not isinstance(source, Node):
        return
    ((dim, index),) = given
    where = index.meta["val"]
    if where.dtype not in _INTEGERS or where.dim() > 1:
        return
    shape: list[Any] = list(source.meta["val"].shape)
    shape[dim : dim + 1] = where.shape
    found = values.meta["val"].shape
    if len(found) != len(shape) or not all(
        statically_known_true(have == want) for have, want in zip(found, shape, strict=True)
    ):
        if not all(isinstance(size, int) for size in (*found, *shape)):
            return
        values = insert_call(node, aten.expand.default, values, shape)
    if where.dim() == 0:
        index = insert_call(node, aten.reshape.default, index, [1])
        values = insert_call(node, aten.unsqueeze.default, values, dim)
    node.args = (source, [None] * dim + [index], values, *rest)
