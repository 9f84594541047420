"""``max`` and ``min`` along a dimension, with the indices."""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

from trt_et.conversion.operator import Operator

aten = torch.ops.aten


def max_with_indices(x: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """Return the largest values, and the first index of each (int64).

    Torch-TensorRT 2.13 takes the operator only if nothing uses the indices.
    """
    return aten.amax.default(x, [dim], keepdim), aten.argmax.default(x, dim, keepdim)


def min_with_indices(x: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """Return the smallest values, and the first index of each; see ``max_with_indices``."""
    return aten.amin.default(x, [dim], keepdim), aten.argmin.default(x, dim, keepdim)


MAX: Final = Operator("max", (aten.max.dim,), decompose=max_with_indices)
MIN: Final = Operator("min", (aten.min.dim,), decompose=min_with_indices)
