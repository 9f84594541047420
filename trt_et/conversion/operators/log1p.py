"""``log1p`` in half precision, and of dynamic sizes."""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

from trt_et.conversion.operator import Operator


def log1p(x: Tensor) -> Tensor:
    """Add the 1 in float32.

    Torch-TensorRT 2.13 adds it in half precision, and takes static sizes only.
    """
    dtype = x.dtype if x.dtype.is_floating_point else torch.float32
    return (x.to(torch.float32) + 1).log().to(dtype)


LOG1P: Final = Operator("log1p", (torch.ops.aten.log1p.default,), decompose=log1p, upstream="log1p")
