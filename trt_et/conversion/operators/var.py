"""Variances of dynamic sizes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import torch
from torch import Tensor

from trt_et.conversion.operator import Operator


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


VAR: Final = Operator("var", (torch.ops.aten.var.correction,), decompose=variance)
