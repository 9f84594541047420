"""``diagonal`` of matrices whose other dimensions are dynamic."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor

from trt_et.conversion.operator import Operator

__all__ = ["DIAGONAL"]


def diagonal(x: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:  # noqa: ANN401
    """Slice the flattened matrices; Torch-TensorRT 2.13 takes static sizes only.

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


DIAGONAL: Final = Operator("diagonal", (torch.ops.aten.diagonal.default,), decompose=diagonal)
