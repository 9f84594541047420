"""Layers that work element by element, reductions, and products."""

from __future__ import annotations

import math
from typing import Any

import tensorrt_rtx as trt
import torch
from torch import Tensor
from torch.nn import functional as F

from tests.support.network_evaluator.registry import (
    DTYPES,
    NotEvaluated,
    Undefined,
    axes_of,
    broadcastable,
    layer_type,
    layer_weights,
    need,
)

_LOGICAL = {"AND": torch.logical_and, "OR": torch.logical_or, "XOR": torch.logical_xor}
_BINARY = {
    "SUM": torch.add,
    "PROD": torch.mul,
    "MAX": torch.maximum,
    "MIN": torch.minimum,
    "SUB": torch.sub,
    "POW": torch.pow,
    "EQUAL": torch.eq,
    "GREATER": torch.gt,
    "LESS": torch.lt,
}
_REDUCED = {"SUM": torch.sum, "MAX": torch.amax, "MIN": torch.amin, "AVG": torch.mean}
_OF_NUMBERS = ("SIGN", "ABS", "NEG")


@layer_type("ELEMENTWISE")
def elementwise(layer: Any, a: Tensor, b: Tensor) -> Tensor:
    name = layer.op.name
    broadcastable(a, b)
    need(a.dtype == b.dtype, f"{name} of {a.dtype} and {b.dtype}")
    if name in _LOGICAL:
        need(a.dtype == torch.bool, f"{name} of {a.dtype}")
        return _LOGICAL[name](a, b)
    need(a.dtype != torch.bool or name == "EQUAL", f"{name} of booleans")
    if name == "DIV":
        return torch.div(a, b, rounding_mode=None if a.is_floating_point() else "trunc")
    if name == "FLOOR_DIV":
        # TensorRT promises no exact quotient of floats; torch computes it from the remainder.
        if a.is_floating_point():
            return torch.floor(a / b)
        return torch.div(a, b, rounding_mode="floor")
    return _BINARY[name](a, b)


@layer_type("UNARY")
def unary(layer: Any, x: Tensor) -> Tensor:
    name = layer.op.name
    if name == "NOT":
        need(x.dtype == torch.bool, f"NOT of {x.dtype}")
        return ~x
    need(
        x.is_floating_point() or (name in _OF_NUMBERS and x.dtype != torch.bool),
        f"{name} of {x.dtype}",
    )
    return getattr(torch, "reciprocal" if name == "RECIP" else name.lower())(x)


@layer_type("ACTIVATION")
def activation(layer: Any, x: Tensor) -> Tensor:
    layer.__class__ = trt.IActivationLayer
    # Not ``layer.type``: the class's own attribute of that name is the kind of activation.
    name, a, b = layer.type.name, layer.alpha, layer.beta
    if name == "RELU":
        return torch.relu(x)
    need(x.is_floating_point(), f"{name} of {x.dtype}")
    functions = {
        "SIGMOID": lambda: torch.sigmoid(x),
        "TANH": lambda: torch.tanh(x),
        "LEAKY_RELU": lambda: torch.where(x >= 0, x, a * x),
        "ELU": lambda: torch.where(x >= 0, x, a * (x.exp() - 1)),
        "SELU": lambda: torch.where(x > 0, b * x, b * (a * x.exp() - a)),
        "SOFTSIGN": lambda: x / (1 + x.abs()),
        "SOFTPLUS": lambda: a * torch.logaddexp(b * x, torch.zeros_like(x)),
        "CLIP": lambda: torch.clamp(x, a, b),
        "HARD_SIGMOID": lambda: torch.clamp(a * x + b, 0, 1),
        "SCALED_TANH": lambda: a * torch.tanh(b * x),
        "THRESHOLDED_RELU": lambda: torch.where(x > a, x, torch.zeros_like(x)),
        "GELU_ERF": lambda: F.gelu(x),
        "GELU_TANH": lambda: F.gelu(x, approximate="tanh"),
    }
    return functions[name]()


@layer_type("PARAMETRIC_RELU")
def parametric_relu(layer: Any, x: Tensor, slope: Tensor) -> Tensor:
    broadcastable(x, slope)
    return torch.where(x >= 0, x, slope * x)


@layer_type("CAST")
def cast(layer: Any, x: Tensor) -> Tensor:
    if layer.to_type == trt.DataType.UINT8:
        need(bool(((x >= 0) & (x < 256)).all()), "CAST of a number that uint8 lacks")
    return x.to(DTYPES[layer.to_type])


@layer_type("IDENTITY")
def identity(layer: Any, x: Tensor) -> Tensor:
    return x.to(DTYPES[layer.get_output(0).dtype])


@layer_type("SELECT")
def select(layer: Any, condition: Tensor, a: Tensor, b: Tensor) -> Tensor:
    broadcastable(condition, a, b)
    need(condition.dtype == torch.bool and a.dtype == b.dtype, "SELECT's dtypes differ")
    return torch.where(condition, a, b)


@layer_type("REDUCE")
def reduce(layer: Any, x: Tensor) -> Tensor:
    axes, keep, name = axes_of(layer.axes), layer.keep_dims, layer.op.name
    need(x.dtype != torch.bool, "a reduction of booleans")
    need(bool(axes) and axes[-1] < x.dim(), f"a reduction over {axes} of {tuple(x.shape)}")
    need(x.is_floating_point() or name != "AVG", f"an average of {x.dtype}")
    if name in _REDUCED:
        return _REDUCED[name](x, axes, keepdim=keep).to(x.dtype)  # The sum of integers is int64.
    if name == "PROD":
        largest = x.double().abs().clamp(min=1).log().sum(axes).max() if x.numel() else 0.0
        if x.is_floating_point() and float(largest) > math.log(torch.finfo(x.dtype).max):
            raise Undefined("a product that may overflow on its way; nobody says in which order")
        for axis in reversed(axes):
            x = x.prod(axis, keepdim=keep, dtype=x.dtype)
        return x
    raise NotEvaluated(f"REDUCE {name}")


@layer_type("SOFTMAX")
def softmax(layer: Any, x: Tensor) -> Tensor:
    (axis,) = axes_of(layer.axes)
    need(x.is_floating_point(), f"SOFTMAX of {x.dtype}")
    return x.softmax(axis)


@layer_type("CUMULATIVE")
def cumulative(layer: Any, x: Tensor, axis: Tensor) -> Tensor:
    dim = int(axis)
    total = x.flip(dim) if layer.reverse else x
    summed = total.cumsum(dim, dtype=x.dtype)
    if layer.exclusive:
        summed = summed - total
    return summed.flip(dim) if layer.reverse else summed


@layer_type("MATRIX_MULTIPLY")
def matrix_multiply(layer: Any, a: Tensor, b: Tensor) -> Tensor:
    need(a.dtype == b.dtype and a.is_floating_point(), f"a product of {a.dtype} and {b.dtype}")
    first = layer.op0 == trt.MatrixOperation.VECTOR
    second = layer.op1 == trt.MatrixOperation.VECTOR
    a = a.unsqueeze(-2) if first else a
    b = b.unsqueeze(-1) if second else b
    a = a.transpose(-1, -2) if layer.op0 == trt.MatrixOperation.TRANSPOSE else a
    b = b.transpose(-1, -2) if layer.op1 == trt.MatrixOperation.TRANSPOSE else b
    need(a.dim() == b.dim() >= 2, f"a product of {tuple(a.shape)} and {tuple(b.shape)}")
    out = a @ b
    out = out.squeeze(-1) if second else out
    return out.squeeze(-1 if second else -2) if first else out


@layer_type("TOPK")
def topk(layer: Any, x: Tensor, k: Tensor | None = None) -> tuple[Tensor, Tensor]:
    (axis,) = axes_of(layer.axes)
    number = layer.k if k is None else int(k)
    need(number <= x.shape[axis], f"the first {number} of {x.shape[axis]}")
    # Ties are in the order of their positions; TensorRT promises nothing.
    largest = layer.op == trt.TopKOperation.MAX
    values, positions = x.sort(dim=axis, descending=largest, stable=True)
    dtype = DTYPES[layer.get_output(1).dtype]
    return values.narrow(axis, 0, number), positions.narrow(axis, 0, number).to(dtype)


@layer_type("NORMALIZATION")
def normalization(layer: Any, x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    axes, groups = axes_of(layer.axes), layer.num_groups
    y = x.float()
    if groups != 1:
        need(axes == list(range(2, x.dim())), f"groups with the axes {axes}")
        y = y.reshape(x.shape[0], groups, -1)
        axes = [2]
    mean = y.mean(axes, keepdim=True)
    variance = ((y - mean) ** 2).mean(axes, keepdim=True)
    y = ((y - mean) / torch.sqrt(variance + layer.epsilon)).reshape(x.shape)
    if groups != 1 and not layer.is_v2:
        need(scale.shape[1] == groups, f"{groups} groups, and a scale of {tuple(scale.shape)}")
        scale, bias = (t.repeat_interleave(x.shape[1] // groups, 1) for t in (scale, bias))
    broadcastable(x, scale)
    broadcastable(x, bias)
    return (y * scale + bias).to(x.dtype)


@layer_type("SCALE")
def scale(layer: Any, x: Tensor) -> Tensor:
    if layer.mode == trt.ScaleMode.ELEMENTWISE:
        raise NotEvaluated("SCALE of elements")
    shape = [1] * x.dim()
    if layer.mode == trt.ScaleMode.CHANNEL:
        shape[layer.channel_axis] = x.shape[layer.channel_axis]

    def weights(role: str, default: float) -> Tensor:
        found = layer_weights(layer, getattr(layer, role.lower()), role)
        return torch.full(shape, default) if found is None else found.reshape(shape)

    y = x.float() * weights("SCALE", 1.0) + weights("SHIFT", 0.0)
    return (y ** weights("POWER", 1.0)).to(x.dtype)


def _quantized(
    layer: Any, x: Tensor, step: Tensor, zero: Tensor | None = None
) -> tuple[Tensor, Tensor, torch.dtype]:
    """A layer's input and scale in float32, which broadcast, and the dtype of its output."""
    if step.dim() > 1 and step.numel() > 1:
        raise NotEvaluated("blocks")
    need(zero is None or not bool(zero.to(torch.float32).any()), "a zero point that is not 0")
    shape = [1] * x.dim()
    if step.numel() > 1:
        shape[layer.axis] = -1
    return x.float(), step.float().reshape(shape), DTYPES[layer.get_output(0).dtype]


_RANGES = {torch.int8: (-128, 127), torch.float8_e4m3fn: (-448, 448)}


@layer_type("QUANTIZE")
def quantize(layer: Any, *inputs: Tensor) -> Tensor:
    x, step, dtype = _quantized(layer, *inputs)
    y = (x / step).round() if dtype == torch.int8 else x / step
    return y.clamp(*_RANGES[dtype]).to(dtype)


@layer_type("DEQUANTIZE")
def dequantize(layer: Any, *inputs: Tensor) -> Tensor:
    x, step, dtype = _quantized(layer, *inputs)
    return (x * step).to(dtype)


@layer_type("ATTENTION_OUTPUT")
def attention_output(layer: Any, x: Tensor) -> Tensor:
    return x


@layer_type("ATTENTION_INPUT")
def attention(
    layer: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, *rest: Any
) -> Tensor:
    """What an ``IAttention`` computes between its two boundary layers."""
    block = layer.attention
    if block.norm_op != trt.AttentionNormalizationOp.SOFTMAX or rest:
        raise NotEvaluated("ATTENTION with another normalization")
    need(query.dtype == key.dtype == value.dtype, "ATTENTION's dtypes differ")
    repeat = query.shape[1] // key.shape[1]
    key, value = (t.repeat_interleave(repeat, 1) for t in (key, value))
    scores = query @ key.transpose(-1, -2)
    kind = block.causal_kind.name
    if kind != "NONE":
        rows, columns = scores.shape[-2:]
        shift = columns - rows if kind == "LOWER_RIGHT" else 0
        keep = torch.ones(rows, columns, dtype=torch.bool).tril(shift)
        scores = scores.masked_fill(~keep, -math.inf)
    if mask is not None:
        need(mask.dtype in (torch.bool, query.dtype), f"a mask of {mask.dtype}")
        broadcastable(mask, scores)
        whole = mask.dtype == torch.bool
        scores = scores.masked_fill(~mask, -math.inf) if whole else scores + mask
    if bool((scores == -math.inf).all(-1).any()):
        raise Undefined("a row of attention that is masked altogether")
    return scores.softmax(-1) @ value
