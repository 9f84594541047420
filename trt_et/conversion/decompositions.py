"""Decompositions of ours, in place of converters that are wrong or take static sizes only."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

__all__ = ["diagonal", "log1p", "max_with_indices", "min_with_indices"]

aten = torch.ops.aten


def log1p(x: Tensor) -> Tensor:
    """``aten.log1p``, with the sum in float32.

    Torch-TensorRT 2.13 adds the 1 in half precision, and takes static sizes only.
    """
    dtype = x.dtype if x.dtype.is_floating_point else torch.float32
    return (x.to(torch.float32) + 1).log().to(dtype)


def max_with_indices(x: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """``aten.max.dim``: the largest values, and the first index of each (int64).

    Torch-TensorRT 2.13 takes it only where nothing uses the indices.
    """
    return aten.amax.default(x, [dim], keepdim), aten.argmax.default(x, dim, keepdim)


def min_with_indices(x: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """``aten.min.dim``: the smallest values, and the first index of each (int64).

    Torch-TensorRT 2.13 takes it only where nothing uses the indices.
    """
    return aten.amin.default(x, [dim], keepdim), aten.argmin.default(x, dim, keepdim)


def diagonal(x: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:  # noqa: ANN401
    """``aten.diagonal`` of matrices of static size, as a strided slice of the flattened matrices.

    Torch-TensorRT 2.13 takes static sizes only; here the other dimensions may be dynamic.

    Args:
        x: Matrices, batched in any dimensions.
        offset: How far the diagonal lies to the right of the main one.
        dim1: The dimension of the rows.
        dim2: The dimension of the columns.

    Returns:
        The diagonals, along the last dimension; ``NotImplemented`` where the size of the matrices
        is dynamic.
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
