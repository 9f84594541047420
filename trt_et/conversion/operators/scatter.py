"""Writes by index: ``scatter``, ``index_put``, ``slice_scatter``."""

from __future__ import annotations

import sys
from functools import partial
from math import prod
from typing import Any, Final

import torch
from torch import Tensor
from torch.fx import Node

from trt_et.conversion.operator import Operator
from trt_et.conversion.operators.member_sums import (
    is_accumulating,
    to_index_add,
    unsupported_sum,
)
from trt_et.graph.insertion import insert_call, insert_size
from trt_et.graph.operators import INTEGERS
from trt_et.graph.symbolic_shapes import is_static, same_sizes

aten = torch.ops.aten


def into_number(node: Node) -> str | None:
    """Refuse a tensor without dimensions: TensorRT takes the layer, but builds no engine of it."""
    args: Any = node.args
    if args[0].meta["val"].dim() == 0:
        return "TensorRT builds no engine that scatters into a tensor without dimensions"
    return None


def fit_source(node: Node) -> None:
    """Cut the source to the shape of the index, or expand a scattered number to a tensor.

    Torch-TensorRT 2.13 passes a larger source unchanged, and turns an integer into a float64.
    """
    source, dim, index, values = node.args[:4]
    if not isinstance(index, Node) or not isinstance(source, Node):
        return
    wanted = index.meta["val"].shape
    if node.target is aten.scatter.value:
        if not wanted or not all(isinstance(size, int) for size in wanted):
            return
        dtype = source.meta["val"].dtype
        values = insert_call(node, aten.full.default, list(wanted), values, dtype=dtype)
        node.target = aten.scatter.src
    elif isinstance(values, Node):
        for axis, (want, have) in enumerate(zip(wanted, values.meta["val"].shape, strict=True)):
            if str(want) != str(have):
                end = insert_size(node, index, axis)
                values = insert_call(node, aten.slice.Tensor, values, axis, 0, end)
    node.args = (source, dim, index, values)


SCATTER: Final = Operator(
    "scatter",
    (aten.scatter.src, aten.scatter.value),
    unsupported=into_number,
    rewrite=fit_source,
)


def unsupported_put(node: Node) -> str | None:
    """Refuse sums that no matrix computes, and several dynamic indices after a whole dimension."""
    if is_accumulating(node):
        return unsupported_sum(node)
    args: Any = node.args
    given = [index for index in args[1] if index is not None]
    if len(given) > 1 and args[1][0] is None and not is_static(node, *node.all_input_nodes):
        return "its indices follow a dimension that is not indexed, and sizes are dynamic"
    return None


def simplify(node: Node) -> Node | None:
    """Write values in their full shape, or add entire rows by ``index_add``."""
    _broadcast_values(node)
    return to_index_add(node)


def _broadcast_values(node: Node) -> None:
    """Broadcast the values of an ``index_put`` with one index; make that index one-dimensional.

    ``cache[:, :, positions] = rows`` reaches an engine with rows of ``[heads, n, width]``, without
    a batch of 1. Torch-TensorRT 2.13 broadcasts values of fewer dimensions than the tensor's
    wrongly: it fails ("Cannot broadcast"), or, if the sizes happen to agree, writes other values.
    It also takes no index without dimensions. With all dimensions it is right.
    """
    source, indices, values, *rest = node.args
    given = [(dim, index) for dim, index in enumerate(indices) if index is not None]  # type: ignore[arg-type]
    if len(given) != 1 or not isinstance(values, Node) or not isinstance(source, Node):
        return
    ((dim, index),) = given
    where = index.meta["val"]
    if where.dtype not in INTEGERS or where.dim() > 1:
        return
    shape: list[Any] = list(source.meta["val"].shape)
    shape[dim : dim + 1] = where.shape
    if not same_sizes(values.meta["val"].shape, shape):
        sizes: list[Any] = [
            insert_size(node, source, d) for d in range(len(shape) - where.dim() + 1)
        ]
        sizes[dim : dim + 1] = [insert_size(node, index, d) for d in range(where.dim())]
        values = insert_call(node, aten.expand.default, values, sizes)
    if where.dim() == 0:
        index = insert_call(node, aten.reshape.default, index, [1])
        values = insert_call(node, aten.unsqueeze.default, values, dim)
    if source.meta["val"].dtype is torch.int64:
        # A range of a computed length is int32 in TensorRT.
        values = insert_call(node, aten._to_copy.default, values, dtype=torch.int64)
    node.args = (source, [None] * dim + [index], values, *rest)


def flatten(node: Node) -> Node | None:
    """Write an ``index_put`` with several indices, or one of several dimensions, with one index.

    Torch-TensorRT 2.13 writes to other elements if dimensions without an index come first
    (``x[:, rows, columns] = values``), and takes no indices of several dimensions. With one list of
    indices, along the first dimension, it is right. The indices must not be negative.
    """
    source, indices, values, *rest = node.args
    given: dict[int, Any] = {d: i for d, i in enumerate(indices) if i is not None}  # type: ignore[arg-type]
    if not is_static(source, values, *given.values()) or not isinstance(source, Node):
        return None
    if any(index.meta["val"].dtype not in INTEGERS for index in given.values()):
        return None
    if len(given) == 1 and next(iter(given.values())).meta["val"].dim() == 1:
        return None
    sizes = list(source.meta["val"].shape)
    dims, others = list(given), [dim for dim in range(len(sizes)) if dim not in given]
    shapes = [index.meta["val"].shape for index in given.values()]
    shape = list(torch.broadcast_shapes(*shapes))  # type: ignore[no-untyped-call]
    call = partial(insert_call, node)
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
    return call(aten.permute.default, result, back)


INDEX_PUT: Final = Operator(
    "index_put",
    (aten.index_put.default,),
    unsupported=unsupported_put,
    rewrite=simplify,
    upstream="index_put",
)
FLAT_INDEX_PUT: Final = Operator(
    "index_put with several indices",
    (aten.index_put.default,),
    rewrite=flatten,
    upstream="index_put",
)


def slice_scatter(
    x: Tensor,
    src: Tensor,
    dim: int = 0,
    start: Any = None,  # noqa: ANN401
    end: Any = None,  # noqa: ANN401
    step: int = 1,
) -> Any:  # noqa: ANN401
    """Join the rows before the slice, the source, and the rows after.

    Torch-TensorRT 2.13 scatters element by element, along static dimensions only. ``start`` and
    ``end`` may be symbolic. The result is ``NotImplemented`` for gaps along a dynamic dimension.
    """
    size = x.shape[dim]
    start, end = 0 if start is None else start, sys.maxsize if end is None else end
    static = all(isinstance(number, int) for number in (size, start, end))
    if static:
        first, last, _ = slice(start, end).indices(size)
        if last <= first:
            return x.clone()
        start, end = first, last if last < size else sys.maxsize
    if step != 1:
        return _with_gaps(x, src, dim, start, step) if static else NotImplemented
    written: list[Any] = list(x.shape)
    written[dim] = src.shape[dim]
    parts = [src.to(x.dtype).expand(written)]
    if not (isinstance(start, int) and start == 0):
        parts.insert(0, aten.slice.Tensor(x, dim, 0, start))
    if not (isinstance(end, int) and end == sys.maxsize):
        parts.append(aten.slice.Tensor(x, dim, end, sys.maxsize))
    return torch.cat(parts, dim) if len(parts) > 1 else parts[0].clone()


def _with_gaps(x: Tensor, src: Tensor, dim: int, start: int, step: int) -> Tensor:
    indices = torch.arange(x.shape[dim], device=x.device) - start
    count = src.shape[dim]
    written = (indices >= 0) & (indices % step == 0) & (indices < count * step)
    source = src.to(x.dtype).index_select(dim, (indices // step).clamp(0, count - 1))
    shape = [1] * x.dim()
    shape[dim] = -1
    return torch.where(written.reshape(shape), source, x)


SLICE_SCATTER: Final = Operator(
    "slice_scatter", (aten.slice_scatter.default,), decompose=slice_scatter
)
