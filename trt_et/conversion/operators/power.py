"""Powers by 0.5 and -0.5, which torch computes as roots."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor

from trt_et.conversion.operator import Operator


def power(x: Tensor, exponent: float) -> Any:  # noqa: ANN401
    """Compute a root: a power of minus infinity is infinity, its root NaN, as in torch."""
    if exponent == 0.5:
        return x.sqrt()
    return x.rsqrt() if exponent == -0.5 else NotImplemented


POWER: Final = Operator("power", (torch.ops.aten.pow.Tensor_Scalar,), decompose=power)
