"""Decompositions that replace converters that are wrong or take static sizes only."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

__all__ = [
    "diagonal",
    "log1p",
    "max_with_indices",
    "min_with_indices",
    "slice_scatter",
    "variance",
]

aten = torch.ops.aten


def log1p(x: Tensor) -> Tensor:
    """Decompose ``aten.log1p``, with the sum in float32.

    Torch-TensorRT 2.13 adds the 1 in half precision, and takes static sizes only.
    """
    dtype = x.dtype if x.dtype.is_floating_point else torch.float32
    return (x.to(torch.float32) + 1).log().to(dtype)


def max_with_indices(x: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """Decompose ``aten.max.dim``: the largest values, and the first index of each (int64).

    Torch-TensorRT 2.13 takes it only if nothing uses the indices.
    """
    return aten.amax.default(x, [dim], keepdim), aten.argmax.default(x, dim, keepdim)


def min_with_indices(x: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """Decompose ``aten.min.dim``: the smallest values, and the first index of each (int64).

    Torch-TensorRT 2.13 takes it only if nothing uses the indices.
    """
    return aten.amin.default(x, [dim], keepdim), aten.argmin.default(x, dim, keepdim)


def variance(
    x: Tensor,
    dim: Sequence[int] | None = None,
    *,
    correction: float | None = None,
    keepdim: bool = False,
) -> Tensor:
    """Decompose ``aten.var.correction``, also for dynamic sizes.

    Torch-TensorRT 2.13 asks for the number of elements, which makes a dynamic size static.
    """
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    dims = list(dim or range(x.dim()))
    difference = wide - wide.mean(dims, True)
    number: Any = math.prod(x.shape[d] for d in dims)
    free = torch.full((), number, dtype=wide.dtype) - (1 if correction is None else correction)
    return ((difference * difference).sum(dims, keepdim) / free.clamp(min=0)).to(x.dtype)


def diagonal(x: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:  # noqa: ANN401
    """Decompose ``aten.diagonal`` of matrices of static size into a strided slice of flat matrices.

    Torch-TensorRT 2.13 takes static sizes only; here the other dimensions may be dynamic.

    Args:
        x: Matrices, batched in any dimensions.
        offset: How far the diagonal lies to the right of the main one.
        dim1: The dimension of the rows.
        dim2: The dimension of the columns.

    Returns:
        The diagonals, along the last dimension; ``NotImplemented`` if the size of the matrices is
        dynamic.
    """
    matrices = x.movedim((dim1, dim2), (-2, -1))
    *others, rows, columns = matrices.shape
    if not isinstance(rows, int) or not isinstance(columns, int):
        return NotImplemented
    first = offset if offset >= 0 else -offset * columns
    length = min(rows + min(offset, 0), columns - max(offset, 0))
    step = columns + 1
    flat = matrices.reshape(*others, rows * columns)
    return flat[..., first : first + (length - 1) * step + 1 : step]


def slice_scatter(
    x: Tensor,
    src: Tensor,
    dim: int = 0,
    start: Any = None,  # noqa: ANN401
    end: Any = None,  # noqa: ANN401
    step: int = 1,
) -> Any:  # noqa: ANN401
    """Decompose ``aten.slice_scatter`` into the rows before the slice, the source, the rows after.

    Torch-TensorRT 2.13 scatters element by element, along static dimensions only.

    Args:
        x: The tensor to write into, of at least one dimension.
        src: The tensor to write.
        dim: The dimension of the slice.
        start: The first index, a number or a symbolic one; counted as torch counts indices.
        end: The index after the last, in the same form.
        step: From one written index to the next.

    Returns:
        A tensor like ``x``; ``NotImplemented`` for gaps along a dynamic dimension.
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
    parts = [src.to(x.dtype).expand(_written(x, src, dim))]
    if not (isinstance(start, int) and start == 0):
        parts.insert(0, aten.slice.Tensor(x, dim, 0, start))
    if not (isinstance(end, int) and end == sys.maxsize):
        parts.append(aten.slice.Tensor(x, dim, end, sys.maxsize))
    return torch.cat(parts, dim) if len(parts) > 1 else parts[0].clone()


def _written(x: Tensor, src: Tensor, dim: int) -> list[Any]:
    shape: list[Any] = list(x.shape)
    shape[dim] = src.shape[dim]
    return shape


def _with_gaps(x: Tensor, src: Tensor, dim: int, start: int, step: int) -> Tensor:
    indices = torch.arange(x.shape[dim], device=x.device) - start
    count = src.shape[dim]
    written = (indices >= 0) & (indices % step == 0) & (indices < count * step)
    source = src.to(x.dtype).index_select(dim, (indices // step).clamp(0, count - 1))
    shape = [1] * x.dim()
    shape[dim] = -1
    return torch.where(written.reshape(shape), source, x)
