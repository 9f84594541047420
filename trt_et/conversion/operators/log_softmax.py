"""``log_softmax`` without the softmax."""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

from trt_et.conversion.operator import Operator

aten = torch.ops.aten


def log_softmax(x: Tensor, dim: int, dtype: torch.dtype | bool | None = None) -> Tensor:
    """Return the number less the logarithm of the sum of exponentials, computed in float32.

    Torch-TensorRT 2.13 takes the logarithm of the softmax, which is 0 if an element is far below
    the largest (by 17 in float16, by 104 in float32): the result is minus infinity, not about that
    difference. ``_log_softmax`` has a flag for float32 in place of the dtype.
    """
    if not isinstance(dtype, torch.dtype):
        dtype = torch.float32 if dtype else x.dtype
    exact = x.to(torch.float32)
    less = exact - exact.amax(dim, keepdim=True)
    return (less - less.exp().sum(dim, keepdim=True).log()).to(dtype)


LOG_SOFTMAX: Final = Operator(
    "log_softmax",
    (aten._log_softmax.default, aten.log_softmax.int),
    decompose=log_softmax,
    upstream="log_softmax",
)
