"""Largest and smallest numbers along a dimension, with their places.

Torch-TensorRT 2.13 takes these only where nothing asks for the places.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["max_with_places", "min_with_places"]

aten = torch.ops.aten


def max_with_places(x: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """``aten.max.dim``: the largest numbers, and the first places that they are at (int64)."""
    return aten.amax.default(x, [dim], keepdim), aten.argmax.default(x, dim, keepdim)


def min_with_places(x: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """``aten.min.dim``: the smallest numbers, and the first places that they are at (int64)."""
    return aten.amin.default(x, [dim], keepdim), aten.argmin.default(x, dim, keepdim)
