"""Activations that torch computes from others, as TensorRT's own.

ExecuTorch and Torch-TensorRT write them out in float32, with a cast before and after each one in
half precision. TensorRT computes its activations in float32 inside, and fuses products.
"""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

from trt_et.conversion.operator import Operator

aten = torch.ops.aten


def hardswish(x: Tensor) -> Tensor:
    """Multiply by TensorRT's hard sigmoid: 2 layers in place of 19."""
    return x * functional.hardsigmoid(x)


def silu(x: Tensor) -> Tensor:
    """Multiply by the sigmoid."""
    return x * x.sigmoid()


def mish(x: Tensor) -> Tensor:
    """Multiply by ``tanh(softplus(x))``."""
    return x * functional.softplus(x).tanh()


def log_sigmoid(x: Tensor) -> Tensor:
    """Negate ``softplus(-x)``."""
    return -functional.softplus(-x)


SILU: Final = Operator("silu", (aten.silu.default,), decompose=silu)
HARDSWISH: Final = Operator("hardswish", (aten.hardswish.default,), decompose=hardswish)
MISH: Final = Operator("mish", (aten.mish.default,), decompose=mish)
LOG_SIGMOID: Final = Operator("log_sigmoid", (aten.log_sigmoid.default,), decompose=log_sigmoid)
