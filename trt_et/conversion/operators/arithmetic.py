"""Numbers one by one: ``log1p``, powers, ``atan2``."""

from __future__ import annotations

import math
from typing import Any, Final

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


def power(x: Tensor, exponent: float) -> Any:  # noqa: ANN401
    """Compute a root: a power of minus infinity is infinity, its root NaN, as in torch."""
    if exponent == 0.5:
        return x.sqrt()
    return x.rsqrt() if exponent == -0.5 else NotImplemented


POWER: Final = Operator("power", (torch.ops.aten.pow.Tensor_Scalar,), decompose=power)


# Torch-TensorRT 2.13 computes the quotient of two infinities, and counts a negative zero as
# positive. Torch's ONNX exporter returns -pi if ``y`` is 0 and ``x`` negative.


def atan2(y: Tensor, x: Tensor) -> Any:  # noqa: ANN401
    """Return the angle, from the arc tangent of the quotient in float32.

    It returns ``NotImplemented`` for float64, which TensorRT does not have.
    """
    dtype = torch.result_type(y, x)
    if dtype is torch.float64:
        return NotImplemented
    dtype = dtype if dtype.is_floating_point else torch.get_default_dtype()
    y, x = y.to(torch.float32), x.to(torch.float32)
    both = torch.isinf(y) & torch.isinf(x)
    y, x = torch.where(both, torch.sign(y), y), torch.where(both, torch.sign(x), x)
    none = (x == 0) & (y == 0)
    angle = torch.where(none, 0.0, torch.atan(y / x.abs()))
    # A zero has the sign of its reciprocal.
    is_behind = (x < 0) | (none & (1 / x < 0))
    turn = torch.where((y < 0) | (1 / y < 0), -math.pi, math.pi)
    return torch.where(is_behind, turn - angle, angle).to(dtype)


ATAN2: Final = Operator("atan2", (torch.ops.aten.atan2.default,), decompose=atan2)
