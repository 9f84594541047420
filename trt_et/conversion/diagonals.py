"""Diagonals as every n-th number of matrices laid out in lines.

Torch-TensorRT 2.13 takes known sizes alone.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

__all__ = ["diagonal"]


def diagonal(x: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:  # noqa: ANN401
    """``aten.diagonal`` of matrices of known size; other dimensions may be dynamic.

    Args:
        x: Matrices, batched in any dimensions.
        offset: How far the diagonal lies to the right of the main one.
        dim1: The dimension of the rows.
        dim2: That of the columns.

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
    line = matrices.reshape(*others, rows * columns)
    return line[..., first : first + (length - 1) * step + 1 : step]
