"""``baddbmm`` in its own dtype."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor

from trt_et.conversion.operator import Operator


def baddbmm(x: Tensor, first: Tensor, second: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:  # noqa: ANN401
    """Add a product of the same dtype; torch writes half precision out in float32.

    A factor below 1 comes before the product, which might overflow without it: the scores of an
    attention in float16.
    """
    if abs(alpha) < 1:
        first = first * alpha
    product = torch.bmm(first, second)
    if abs(alpha) > 1 or alpha == -1:
        product = product * alpha
    if beta == 0:
        return product  # The summand does not count, even if it is no number.
    return product + (x if beta == 1 else x * beta)


BADDBMM: Final = Operator("baddbmm", (torch.ops.aten.baddbmm.default,), decompose=baddbmm)
