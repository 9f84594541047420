"""Layers that move elements: shuffles, slices, gathers, scatters."""

from __future__ import annotations

import math
from typing import Any

import tensorrt_rtx as trt
import torch
from torch import Tensor

from tests.support.network_evaluator.registry import (
    DTYPES,
    BadNetwork,
    NotEvaluated,
    Undefined,
    layer_type,
    need,
)


@layer_type("SHUFFLE")
def shuffle(layer: Any, x: Tensor, wanted: Tensor | None = None) -> Tensor:
    x = x.permute(list(layer.first_transpose)[: x.dim()])
    if wanted is not None or _is_given(layer.reshape_dims):
        sizes = list(layer.reshape_dims) if wanted is None else wanted.tolist()
        if layer.zero_is_placeholder:
            sizes = [x.shape[i] if size == 0 else size for i, size in enumerate(sizes)]
        need(
            sizes.count(-1) <= 1 and (-1 in sizes or math.prod(sizes) == x.numel()),
            f"a reshape of {tuple(x.shape)} to {sizes}",
        )
        x = x.reshape(sizes)
    return x.permute(list(layer.second_transpose)[: x.dim()])


def _is_given(dims: Any) -> bool:
    """Whether TensorRT's dimensions are set: TensorRT-RTX 1.6 has None for those that are not."""
    try:
        return dims is not None and len(dims) >= 0
    except ValueError:  # TensorRT-RTX 1.5 has dimensions of a negative length.
        return False


@layer_type("SLICE")
def slice_(
    layer: Any,
    x: Tensor,
    start: Tensor | None = None,
    shape: Tensor | None = None,
    stride: Tensor | None = None,
    fill: Tensor | None = None,
    axes: Tensor | None = None,
) -> Tensor:
    given = [
        list(getattr(layer, name)) if tensor is None else tensor.tolist()
        for name, tensor in (("start", start), ("shape", shape), ("stride", stride))
    ]
    wanted = range(x.dim())
    if axes is not None or (_is_given(layer.axes) and len(layer.axes)):
        wanted = [axis % x.dim() for axis in (layer.axes if axes is None else axes.tolist())]
    need(all(len(g) == len(wanted) for g in given), f"a slice of {tuple(x.shape)} by {given}")
    mode = layer.mode.name
    inside = torch.ones([], dtype=torch.bool)
    for axis, first, count, step in zip(wanted, *given, strict=True):
        need(count >= 0, f"a slice of {count} elements")
        length = x.shape[axis]
        positions = first + step * torch.arange(count)
        valid = (positions >= 0) & (positions < length)
        if mode == "STRICT_BOUNDS":
            need(bool(valid.all()), f"a slice of {positions.tolist()} from {length}")
        elif mode == "WRAP":
            positions = positions % length
        elif mode == "CLAMP":
            positions = positions.clamp(0, length - 1)
        elif mode == "REFLECT":
            period = max(2 * (length - 1), 1)
            positions = positions % period
            positions = torch.where(positions >= length, period - positions, positions)
        elif mode == "FILL":
            positions = positions.clamp(0, max(length - 1, 0))
            sizes = [1] * x.dim()
            sizes[axis] = count
            inside = inside & valid.reshape(sizes)
        if length == 0 and count > 0:
            need(mode == "FILL", "a slice of nothing")
            sizes = list(x.shape)
            sizes[axis] = count
            x = x.new_zeros(sizes)
        else:
            x = x.index_select(axis, positions)
    if mode == "FILL":
        value = x.new_zeros([]) if fill is None else fill.reshape([])
        need(value.dtype == x.dtype, f"a slice of {x.dtype} filled with {value.dtype}")
        x = torch.where(inside, x, value)
    return x


@layer_type("CONCATENATION")
def concatenation(layer: Any, *inputs: Tensor) -> Tensor:
    need(len({x.dtype for x in inputs}) == 1, f"a concatenation of {[x.dtype for x in inputs]}")
    need(len({x.dim() for x in inputs}) == 1, "a concatenation of different ranks")
    axis = layer.axis
    rests = {(*x.shape[:axis], *x.shape[axis + 1 :]) for x in inputs}
    need(len(rests) == 1, "other sizes")
    # torch skips empty tensors of one dimension; these have equal ranks.
    return torch.cat(inputs, axis)


@layer_type("SHAPE")
def shape(layer: Any, x: Tensor) -> Tensor:
    return torch.tensor(x.shape, dtype=torch.int64)


@layer_type("UNSQUEEZE")
def unsqueeze(layer: Any, x: Tensor, axes: Tensor) -> Tensor:
    axes = axes.reshape(-1)
    rank = x.dim() + axes.numel()
    for axis in sorted(axis % rank for axis in axes.tolist()):
        x = x.unsqueeze(axis)
    return x


@layer_type("GATHER")
def gather(layer: Any, x: Tensor, indices: Tensor) -> Tensor:
    need(indices.dtype in (torch.int32, torch.int64), f"a gather by {indices.dtype}")
    dims = list(layer.get_input(0).shape)
    mode, lead, axis = layer.mode.name, layer.num_elementwise_dims, layer.axis
    positions = indices.long()
    if mode == "DEFAULT":
        if lead:
            raise NotEvaluated("GATHER with an elementwise dimension")
        axis = axis % x.dim()
        found, outside = _wrapped(positions, x.shape[axis], dims[axis])
        out = x.index_select(axis, found.reshape(-1))
        out = out.reshape([*x.shape[:axis], *positions.shape, *x.shape[axis + 1 :]])
        outside = outside.reshape([*positions.shape, *[1] * (x.dim() - axis - 1)])
        return out.masked_fill(outside, 0)
    if mode == "ELEMENT":
        axis = axis % x.dim()
        need(positions.dim() == x.dim(), "GATHER of elements: ranks differ")
        found, outside = _wrapped(positions, x.shape[axis], dims[axis])
        return x.gather(axis, found).masked_fill(outside, 0)
    depth = positions.shape[-1]
    need(x.shape[:lead] == positions.shape[:lead], "GATHER's leading dimensions differ")
    columns = []
    outside = torch.zeros(positions.shape[:-1], dtype=torch.bool)
    for i in range(depth):
        found, out = _wrapped(positions[..., i], x.shape[lead + i], dims[lead + i])
        columns.append(found)
        outside |= out
    leading = [
        torch.arange(x.shape[i]).reshape([-1 if j == i else 1 for j in range(positions.dim() - 1)])
        for i in range(lead)
    ]
    out = x[(*leading, *columns)]
    return out.masked_fill(outside.reshape([*outside.shape, *[1] * (out.dim() - outside.dim())]), 0)


def _wrapped(positions: Tensor, size: int, declared: int) -> tuple[Tensor, Tensor]:
    if declared < 0 and bool((positions < 0).any()):
        raise BadNetwork("a gather by negative indices along a dynamic dimension")
    found = torch.where(positions < 0, positions + size, positions)
    outside = (found < 0) | (found >= size)
    return found.masked_fill(outside, 0), outside


@layer_type("SCATTER")
def scatter(layer: Any, x: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
    need(x.dtype == updates.dtype, f"a scatter of {updates.dtype} into {x.dtype}")
    need(indices.dtype in (torch.int32, torch.int64), f"a scatter by {indices.dtype}")
    positions = indices.long()
    if layer.mode == trt.ScatterMode.ELEMENT:
        axis = layer.axis % x.dim()
        need(
            positions.shape == updates.shape and positions.dim() == x.dim(),
            "SCATTER's shapes differ",
        )
        _in_bounds(positions, x.shape[axis])
        _written_once(
            torch.zeros(x.shape).scatter_add(axis, positions, torch.ones(positions.shape))
        )
        return x.scatter(axis, positions, updates)
    depth = positions.shape[-1]
    want = [*positions.shape[:-1], *x.shape[depth:]]
    need(list(updates.shape) == want, f"SCATTER of {tuple(updates.shape)} where {want} go")
    for i in range(depth):
        _in_bounds(positions[..., i], x.shape[i])
    where = tuple(positions[..., i] for i in range(depth))
    counts = torch.zeros(x.shape[:depth])
    _written_once(counts.index_put(where, torch.ones(positions.shape[:-1]), accumulate=True))
    return x.index_put(where, updates)


def _in_bounds(positions: Tensor, size: int) -> None:
    if bool((positions < 0).any() | (positions >= size).any()):
        raise BadNetwork("a scatter out of bounds, or by negative indices")


def _written_once(counts: Tensor) -> None:
    if bool((counts > 1).any()):
        raise Undefined("a scatter that writes twice to the same element")


@layer_type("NON_ZERO")
def non_zero(layer: Any, x: Tensor) -> Tensor:
    return x.nonzero().t().to(DTYPES[layer.get_output(0).dtype])


@layer_type("FILL")
def fill(
    layer: Any,
    sizes: Tensor | None = None,
    alpha: Tensor | None = None,
    beta: Tensor | None = None,
) -> Tensor:
    dims = list(layer.shape) if sizes is None else sizes.tolist()
    if layer.operation != trt.FillOperation.LINSPACE:
        raise NotEvaluated(f"FILL {layer.operation.name}")
    dtype = DTYPES[layer.get_output(0).dtype]
    first = layer.alpha if alpha is None else alpha
    need(alpha is None or alpha.dim() == 0, "FILL's start is no scalar")
    steps = [layer.beta] if beta is None else beta.reshape(-1).tolist()
    need(len(steps) == len(dims), f"FILL of {dims} with the steps {steps}")
    out = torch.zeros(dims, dtype=torch.float64) + first
    for axis, (size, step) in enumerate(zip(dims, steps, strict=True)):
        shape = [1] * len(dims)
        shape[axis] = size
        out = out + (torch.arange(size, dtype=torch.float64) * step).reshape(shape)
    return out.to(dtype)


@layer_type("KV_CACHE_UPDATE")
def kv_cache_update(layer: Any, cache: Tensor, update: Tensor, write: Tensor) -> Tensor:
    out = cache.clone()
    for i, at in enumerate(write.tolist()):
        if not 0 <= at <= cache.shape[2] - update.shape[2]:
            # The Edge dialect's index_put counts from the end; index_copy, which it may have been,
            # refuses (InPlaceBuffer.refuses_negative_indices).
            raise Undefined(f"a row at {at}")
        out[i, :, at : at + update.shape[2]] = update[i]
    return out
