"""Turns quantize operators into ONNX's QuantizeLinear and DequantizeLinear.

The parser of TensorRT takes constant scales and zero points of 0, as TensorRT's layers do. Another
zero point becomes a sum outside of the two operators.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import torch
import torch.ao.quantization.fx._decomposed  # Registers the operators of PT2E.
from torch import Tensor
from torch.fx import Node

from trt_et.conversion.operator import Operator
from trt_et.conversion.operators.types import cast
from trt_et.errors import ConversionError
from trt_et.graph.arguments import named_arguments
from trt_et.graph.insertion import insert_call, insert_constant
from trt_et.ops.fake_quantize import FAKE_QUANTIZE, FP8_LIMIT, SMALLEST_AMAX
from trt_et.ops.quantize import constant_source, moves_numbers

aten = torch.ops.aten
_operators = torch.ops.quantized_decomposed
_QUANTIZE: Final = (
    _operators.quantize_per_tensor.default,
    _operators.quantize_per_channel.default,
)
_DEQUANTIZE: Final = (
    _operators.dequantize_per_tensor.default,
    _operators.dequantize_per_channel.default,
)
_INT8: Final = (-128, 127)


def quantize_linear(x: Tensor, scale: Tensor, zero: Tensor, axis: int) -> Tensor:
    """Quantize float32 numbers by one scale, or by one for each index along an axis.

    ``zero`` holds as many zeros, of the result's dtype.
    """
    quotient = x / _along(scale, axis, x.dim())
    if zero.dtype is torch.int8:
        quotient = torch.clamp(torch.round(quotient), *_INT8)
    return quotient.to(zero.dtype)


def dequantize_linear(x: Tensor, scale: Tensor, axis: int) -> Tensor:
    """Return float32 numbers from quantized ones; the arguments are ``quantize_linear``'s."""
    return x.to(torch.float32) * _along(scale, axis, x.dim())


def _along(scale: Tensor, axis: int, rank: int) -> Tensor:
    return (
        scale.reshape([-1 if dim == axis else 1 for dim in range(rank)]) if scale.dim() else scale
    )


def to_linear(node: Node) -> Node:
    """Replace one of PT2E's operators."""
    given = named_arguments(node)
    call = partial(insert_call, node)
    x = given["input"]
    rank = x.meta["val"].dim()
    channels = "scales" in given
    axis = given["axis"] % rank if channels else 0
    scale = _constant(node, given["scales" if channels else "scale"])
    zero_points = given["zero_points" if channels else "zero_point"]
    zero_point = _constant(node, 0 if zero_points is None else zero_points).expand(scale.shape)
    is_shifted = bool(zero_point.any())

    constant = partial(_named_constant, node)

    def shaped(what: str, value: Tensor) -> Node:
        return constant(what, _along(value, axis, rank))

    if node.target in _DEQUANTIZE:
        x = _folded(node, x)
        result = call(dequantize_linear, x, constant("scale", scale), axis)
        if is_shifted:
            result = call(aten.sub.Tensor, result, shaped("shift", scale * zero_point))
        return cast(node, result, node.meta["val"].dtype)
    x = cast(node, x, torch.float32)
    bounds = (given["quant_min"], given["quant_max"])
    if is_shifted:
        # Torch rounds to even before it adds the zero point, which may be odd.
        x = call(aten.mul.Tensor, x, shaped("factor", 1 / scale))
        x = call(aten.add.Tensor, call(aten.round.default, x), shaped("zero_point", zero_point))
        scale = torch.ones_like(scale)
    if bounds != _INT8:
        x = call(aten.maximum.default, x, shaped("low", scale * bounds[0]))
        x = call(aten.minimum.default, x, shaped("high", scale * bounds[1]))
    zero = constant("zero", torch.zeros(scale.shape, dtype=torch.int8))
    return call(quantize_linear, x, constant("scale", scale), zero, axis)


def to_linear_fp8(node: Node) -> Node | None:
    """Replace an operator that quantizes to fp8 and dequantizes."""
    given = named_arguments(node)
    amax = _constant(node, given["amax"])
    if amax.numel() != 1:
        raise ConversionError("it has a scale for each channel; TensorRT's fp8 has one", node.name)
    largest = amax.reshape(())
    scale = (largest if largest > SMALLEST_AMAX else torch.ones(())) / FP8_LIMIT

    factor = _named_constant(node, "scale", scale)
    zero = _named_constant(node, "zero", torch.zeros((), dtype=torch.float8_e4m3fn))
    x = cast(node, given["input"], torch.float32)
    quantized = insert_call(node, quantize_linear, x, factor, zero, 0)
    result = insert_call(node, dequantize_linear, quantized, factor, 0)
    return cast(node, result, node.meta["val"].dtype)


def _named_constant(node: Node, what: str, value: Tensor) -> Node:
    return insert_constant(node, f"_constant_{node.name}_{what}", value.clone())


def _constant(node: Node, value: Any) -> Tensor:  # noqa: ANN401
    """Return a scale or zero point as float32.

    Raises:
        ConversionError: It is no constant.
    """
    if isinstance(value, Node):
        source = constant_source(value)
        if source is None or source.op != "get_attr":
            raise ConversionError(
                "its scale comes from outside; TensorRT needs constants", node.name
            )
        owner: Any = node.graph.owning_module
        value = getattr(owner, str(source.target)).detach().reshape(value.meta["val"].shape)
    tensor = torch.as_tensor(value, dtype=torch.float32)
    return tensor.reshape(()) if tensor.numel() == 1 else tensor


def _folded(node: Node, value: Node) -> Node:
    """Move the numbers of a quantized constant now: TensorRT moves no int8 tensors."""
    moves = []
    source = value
    while moves_numbers(source):
        moves.append(source)
        (source,) = source.all_input_nodes
    if not moves or source.op != "get_attr":
        return value
    owner: Any = node.graph.owning_module
    tensor = getattr(owner, str(source.target)).detach()
    for move in reversed(moves):
        tensor = move.target(tensor, *move.args[1:], **move.kwargs)  # type: ignore[operator]
    return insert_constant(node, f"_constant_{node.name}_moved", tensor.contiguous())


ONNX_QUANTIZE: Final = Operator("ONNX's quantize", (*_QUANTIZE, *_DEQUANTIZE), rewrite=to_linear)
ONNX_FP8: Final = Operator("ONNX's fp8", (FAKE_QUANTIZE,), rewrite=to_linear_fp8)
