"""The functions that compute a layer, by its type, and what they share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any

import tensorrt_rtx as trt
import torch

LAYERS: dict[Any, tuple[Any, Callable[..., Any]]] = {}
# Such as IElementWiseLayer by "ELEMENTWISE".
_CLASSES = {name[1:-5].upper(): cls for name, cls in vars(trt).items() if name.endswith("Layer")}

DTYPES = {
    trt.DataType.FLOAT: torch.float32,
    trt.DataType.HALF: torch.float16,
    trt.DataType.BF16: torch.bfloat16,
    trt.DataType.INT8: torch.int8,
    trt.DataType.INT32: torch.int32,
    trt.DataType.INT64: torch.int64,
    trt.DataType.BOOL: torch.bool,
    trt.DataType.UINT8: torch.uint8,
    trt.DataType.FP8: torch.float8_e4m3fn,
}


class NotEvaluated(Exception):
    """The evaluator does not know a layer, or this use of it."""


class BadNetwork(Exception):
    """TensorRT refuses this network, or leaves what it computes undefined."""


class Undefined(BadNetwork):
    """For these inputs TensorRT promises no result; for others it does."""


def layer_type(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function ``(layer, *inputs) -> tensor or tensors`` for one type of layer.

    Args:
        name: A member of ``trt.LayerType``; the class of the bindings follows from it.
    """

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        LAYERS[getattr(trt.LayerType, name)] = (_CLASSES[name.replace("_", "")], function)
        return function

    return register


# What Torch-TensorRT keeps of the weights that it hands to layers, by layer and role: TensorRT
# shows weights as NumPy's, which has no bfloat16.
RECORDED: ContextVar[Mapping[str, torch.Tensor]] = ContextVar("recorded weights")


def layer_weights(layer: Any, given: Any, role: str) -> torch.Tensor | None:
    """The weights that a layer has as ``given``; none where it has none."""
    if isinstance(given, trt.Weights):
        # It records transposed convolutions' as convolutions'.
        name = layer.name.replace("[DECONVOLUTION]", "[CONVOLUTION]")
        return RECORDED.get().get(f"{name} {role}")
    found = torch.as_tensor(given)
    return found if found.numel() else None


def need(condition: bool, message: str) -> None:
    """Raise :class:`BadNetwork` unless TensorRT's condition holds."""
    if not condition:
        raise BadNetwork(message)


def axes_of(mask: int) -> list[int]:
    return [axis for axis in range(32) if mask >> axis & 1]


def broadcastable(*tensors: torch.Tensor) -> None:
    """Check TensorRT's rule: equal ranks, and sizes that are equal or 1."""
    ranks = {tensor.dim() for tensor in tensors}
    need(len(ranks) == 1, f"ranks differ: {[tuple(t.shape) for t in tensors]}")
    for sizes in zip(*(t.shape for t in tensors), strict=True):
        need(len({*sizes} - {1}) < 2, f"sizes differ: {[tuple(t.shape) for t in tensors]}")
