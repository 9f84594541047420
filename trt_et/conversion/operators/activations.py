"""Activations, and ``log_softmax``.

ExecuTorch and Torch-TensorRT write activations that torch computes from others out in float32, with
a cast before and after each one in half precision. TensorRT computes its activations in float32
inside, and fuses products.
"""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor
from torch.fx import Node
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


# Above this, softplus is its argument as far as float32 can tell.
_THRESHOLD: Final = 15


def threshold(node: Node) -> str | None:
    """Refuse a threshold low enough to change the result; TensorRT's layer has no threshold."""
    args: Any = node.args
    if len(args) > 2 and args[2] < _THRESHOLD:
        return "TensorRT's softplus has no threshold"
    return None


SOFTPLUS: Final = Operator(
    "softplus", (aten.softplus.default,), unsupported=threshold, upstream="softplus"
)


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
