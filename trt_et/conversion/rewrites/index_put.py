"""``index_put`` in the forms that Torch-TensorRT 2.13 converts right.

One number that is written by a mask (``x[x > 1] = 1``), which it does not convert, becomes a
``where``.
"""

from __future__ import annotations

from math import prod
from typing import Any, Final

import torch
from torch.fx import GraphModule, Node
from torch.fx.experimental.symbolic_shapes import statically_known_true

from trt_et.graph.insertion import insert_call

__all__ = [
    "broadcast_index_put_values",
    "flatten_index_put",
    "is_masked_put",
    "masked_put_to_where",
]

aten = torch.ops.aten

_INTEGERS: Final = (torch.int32, torch.int64)


def is_masked_put(node: Node) -> bool:
    """Check whether a node writes one number to the elements that a mask selects."""
    if node.target is not aten.index_put.default or len(node.args) != 3:
        return False
    source, indices, value = node.args
    mask: Any = indices[0] if isinstance(indices, list | tuple) and len(indices) == 1 else None
    if not all(isinstance(tensor, Node) for tensor in (source, mask, value)):
        return False
    where, number = mask.meta["val"], value.meta["val"]  # type: ignore[union-attr]
    return where.dtype is torch.bool and where.dim() > 0 and all(s == 1 for s in number.shape)


def masked_put_to_where(module: GraphModule) -> None:
    """Write such an ``index_put`` as ``where``.

    Args:
        module: Plain ATen, with ``val`` metadata; changed in place.
    """
    for node in list(module.graph.nodes):
        if is_masked_put(node):
            source, (mask,), value = node.args
            for _ in range(source.meta["val"].dim() - mask.meta["val"].dim()):
                mask = insert_call(node, aten.unsqueeze.default, mask, -1)
            number = insert_call(node, aten.reshape.default, value, [])
            chosen = insert_call(node, aten.where.self, mask, number, source)
            node.replace_all_uses_with(chosen)
            node.graph.erase_node(node)
    module.recompile()


def broadcast_index_put_values(module: GraphModule) -> None:
    """Broadcast the values of an ``index_put`` with one index, and make that index one-dimensional.

    ``cache[:, :, positions] = rows`` reaches an engine with rows of ``[heads, n, width]``, without
    a batch of 1. Torch-TensorRT 2.13 broadcasts values of fewer dimensions than the tensor's
    wrongly: it fails ("Cannot broadcast"), or, if the sizes happen to agree, writes other values.
    It also takes no index without dimensions. With all dimensions it is right.

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


def flatten_index_put(module: GraphModule) -> None:
    """Write an ``index_put`` with several indices, or one of several dimensions, with one index.

    Torch-TensorRT 2.13 writes to other elements if dimensions without an index come first
    (``x[:, rows, columns] = values``), and takes no indices of several dimensions. With one list of
    indices, along the first dimension, it is right.

    Args:
        module: Plain ATen, with ``val`` metadata, its indices not negative; changed in place.
    """
    for node in list(module.graph.nodes):
        if node.target is aten.index_put.default and len(node.args) > 2:
            _put_by_one(node)
    module.graph.eliminate_dead_code()
    module.recompile()


def _is_static(*nodes: object) -> bool:
    return all(
        isinstance(node, Node) and all(isinstance(size, int) for size in node.meta["val"].shape)
        for node in nodes
    )


def _put_by_one(node: Node) -> None:
    source, indices, values, *rest = node.args
    given: dict[int, Any] = {d: i for d, i in enumerate(indices) if i is not None}  # type: ignore[arg-type]
    if not _is_static(source, values, *given.values()) or not isinstance(source, Node):
        return
    if any(index.meta["val"].dtype not in _INTEGERS for index in given.values()):
        return
    if len(given) == 1 and next(iter(given.values())).meta["val"].dim() == 1:
        return
    sizes = list(source.meta["val"].shape)
    dims, others = list(given), [dim for dim in range(len(sizes)) if dim not in given]
    shapes = [index.meta["val"].shape for index in given.values()]
    shape = list(torch.broadcast_shapes(*shapes))  # type: ignore[no-untyped-call]

    def call(operator: Any, *args: Any, **kwargs: Any) -> Node:  # noqa: ANN401
        return insert_call(node, operator, *args, **kwargs)

    number = None
    for order_index, dim in enumerate(dims):
        step = prod(sizes[d] for d in dims[order_index + 1 :])
        index = call(aten._to_copy.default, given[dim], dtype=torch.int64)
        index = call(aten.mul.Scalar, index, step) if step > 1 else index
        number = index if number is None else call(aten.add.Tensor, number, index)
    number = call(aten.reshape.default, call(aten.expand.default, number, shape), [-1])
    # Torch puts the indices' dimensions first, or in place of adjacent indexed dimensions.
    at = dims[0] if dims == list(range(dims[0], dims[-1] + 1)) else 0
    kept = [sizes[dim] for dim in others]
    values = call(aten.expand.default, values, [*kept[:at], *shape, *kept[at:]])
    order = [*range(at, at + len(shape)), *range(at), *range(at + len(shape), len(kept + shape))]
    values = call(aten.reshape.default, call(aten.permute.default, values, order), [-1, *kept])
    flat = call(aten.permute.default, source, [*dims, *others])
    flat = call(aten.reshape.default, flat, [-1, *kept])
    put = call(aten.index_put.default, flat, [number], values, *rest)
    result = call(aten.reshape.default, put, [*(sizes[dim] for dim in dims), *kept])
    back = sorted(range(len(sizes)), key=[*dims, *others].__getitem__)
    node.replace_all_uses_with(call(aten.permute.default, result, back))
