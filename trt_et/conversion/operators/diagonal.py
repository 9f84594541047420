"""``diagonal`` of matrices with dynamic sizes.

Torch-TensorRT 2.13 takes static sizes only, and torch's ONNX exporter makes an EyeLike of a dynamic
size, which TensorRT's parser refuses.
"""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

from trt_et.conversion.operator import Operator


def diagonal(x: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """Pick the diagonals from the flattened matrices, which may be batched in any dimensions."""
    matrices = x.movedim((dim1, dim2), (-2, -1))
    *others, rows, columns = matrices.shape
    step = columns + 1
    if isinstance(rows, int) and isinstance(columns, int):
        first = offset if offset >= 0 else -offset * columns
        length = max(min(rows + min(offset, 0), columns - max(offset, 0)), 0)
        flat = matrices.reshape(*others, rows * columns)
        return flat[..., first : first + (length - 1) * step + 1 : step]
    first = max(-offset, 0) * columns + max(offset, 0)
    length = torch.sym_min(rows - max(-offset, 0), columns - max(offset, 0))
    places = torch.arange(length, device=x.device) * step + first
    return matrices.reshape(*others, rows * columns)[..., places]


DIAGONAL: Final = Operator("diagonal", (torch.ops.aten.diagonal.default,), decompose=diagonal)
