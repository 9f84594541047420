"""Inputs in the layout in memory that a program expects: ExecuTorch copies them as they lie."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from trt_et.inspection import TensorValue


def lay_out(inputs: Sequence[TensorValue | None], values: Sequence[Any]) -> list[Any]:
    """Return the values, each tensor in the dimension order of the method's input."""
    return [
        _ordered(value, expected.dim_order)
        if expected is not None
        and isinstance(value, torch.Tensor)
        and value.dim() == len(expected.sizes)
        else value
        for expected, value in zip(inputs, values, strict=False)
    ] + list(values[len(inputs) :])


def _ordered(tensor: torch.Tensor, dim_order: Sequence[int]) -> torch.Tensor:
    if tensor.is_contiguous() and not dim_order:
        return tensor
    order = tuple(dim_order or range(tensor.dim()))
    return tensor.permute(order).contiguous().permute(inverse(order))


def inverse(order: Sequence[int]) -> list[int]:
    """Return the permutation that undoes another one."""
    return sorted(range(len(order)), key=order.__getitem__)
