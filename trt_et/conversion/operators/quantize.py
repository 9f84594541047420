"""Quantize and dequantize operators as those of TensorRT and of ONNX: with constant scales.

Both take a zero point of 0; another becomes a sum outside of the two operators. Torch-TensorRT's
converters know only the quantize operators of other tools.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import torch
import torch.ao.quantization.fx._decomposed  # Registers the operators of PT2E.
from torch import Tensor
from torch.fx import Node

from trt_et.conversion.layers import Layers
from trt_et.conversion.operator import Operator
from trt_et.conversion.operators.type_promotion import cast
from trt_et.errors import ConversionError
from trt_et.graph.arguments import named_arguments
from trt_et.graph.insertion import insert_call, insert_constant
from trt_et.ops.fake_quantize import FAKE_QUANTIZE, FP8_LIMIT, SMALLEST_AMAX, limits
from trt_et.ops.quantize import constant_source, is_fp8, is_weight_cast, moves_numbers

aten = torch.ops.aten
_operators = torch.ops.quantized_decomposed
_QUANTIZE: Final = _operators.quantize_per_tensor.default
_DEQUANTIZE: Final = _operators.dequantize_per_tensor.default
_QUANTIZE_CHANNELS: Final = _operators.quantize_per_channel.default
_DEQUANTIZE_CHANNELS: Final = _operators.dequantize_per_channel.default

_INT8: Final = (-128, 127)  # TensorRT's layer clamps to these.
_TO_ZERO: Final = 2.0**100  # A scale that turns all numbers into zeros.


def quantize_linear(x: Tensor, scale: Tensor, zero: Tensor, axis: int) -> Tensor:
    """Quantize floats by one float32 scale, or by one for each index along an axis.

    ``zero`` holds as many zeros, of the result's dtype.
    """
    quotient = x.to(torch.float32) / _along(scale, axis, x.dim())
    if zero.dtype is torch.int8:
        quotient = torch.clamp(torch.round(quotient), *_INT8)
    return quotient.to(zero.dtype)


def dequantize_linear(x: Tensor, scale: Tensor, axis: int, dtype: torch.dtype) -> Tensor:
    """Return floats of a dtype from quantized numbers; the scale is ``quantize_linear``'s."""
    return (x.to(torch.float32) * _along(scale, axis, x.dim())).to(dtype)


def _along(scale: Tensor, axis: int, rank: int) -> Tensor:
    return (
        scale.reshape([-1 if dim == axis else 1 for dim in range(rank)]) if scale.dim() else scale
    )


def keep_weights_int8(node: Node) -> Node | None:
    """Replace a cast of int8 weights to floats by dequantizing with the scale 1.

    Torch-TensorRT would compute the cast, and the engine would hold floats; TensorRT casts no int8.
    """
    source = constant_source(node.args[0]) if is_weight_cast(node) else None
    if source is None or source.op != "get_attr":
        return None
    how = (1.0, 0, *_INT8, torch.int8)
    dtype = node.meta["val"].dtype
    return insert_call(node, _DEQUANTIZE, node.args[0], *how, out_dtype=dtype)


def split_fake_quantize(node: Node) -> Node | None:
    """Split an operator that quantizes and dequantizes; for int8, into PT2E's two operators.

    So a program quantized by modelopt becomes the same engine as one quantized by PT2E.
    """
    given = named_arguments(node)
    value = node.meta["val"]
    amax = _constant(node, given["amax"])
    if is_fp8(node):
        if amax.dim():
            reason = "it has a scale for each channel; TensorRT's fp8 has one"
            raise ConversionError(reason, node.name)
        scale = torch.where(amax > SMALLEST_AMAX, amax, 1.0) / FP8_LIMIT
        factor = _insert(node, "scale", scale)
        zero = _insert(node, "zero", torch.zeros((), dtype=torch.float8_e4m3fn))
        x = insert_call(node, quantize_linear, given["input"], factor, zero, 0)
        _become(node, dequantize_linear, x, factor, 0, value.dtype)
        return None
    low, high = (int(n) for n in limits(8, 0, given["unsigned"], given["narrow_range"]))
    scale = torch.where(amax <= SMALLEST_AMAX, _TO_ZERO, amax / high)
    how: tuple[Any, ...]
    if scale.numel() == 1:
        how = (scale.item(), 0, low, high, torch.int8)
        quantize, dequantize = _QUANTIZE, _DEQUANTIZE
    else:
        axis = next(i for i, size in enumerate(scale.shape) if size != 1)
        axis += value.dim() - scale.dim()
        zeros = torch.zeros(scale.numel(), dtype=torch.int64)
        constants = (
            _insert(node, name, constant)
            for name, constant in (("scales", scale.reshape(-1)), ("zeros", zeros))
        )
        how = (*constants, axis, low, high, torch.int8)
        quantize, dequantize = _QUANTIZE_CHANNELS, _DEQUANTIZE_CHANNELS
    quantized = insert_call(node, quantize, given["input"], *how)
    return insert_call(node, dequantize, quantized, *how, out_dtype=value.dtype)


def to_linear(node: Node) -> Node | None:
    """Replace one of PT2E's operators by ``quantize_linear`` or ``dequantize_linear``."""
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

    def shaped(what: str, value: Tensor, beside: Node) -> Node:
        shape = _along(value, axis, rank)
        return _insert(node, what, shape.to(beside.meta["val"].dtype))

    if node.target in (_DEQUANTIZE, _DEQUANTIZE_CHANNELS):
        x, factor, dtype = _moved(node, x), _insert(node, "scale", scale), node.meta["val"].dtype
        if not is_shifted:
            _become(node, dequantize_linear, x, factor, axis, dtype)
            return None
        result = call(dequantize_linear, x, factor, axis, torch.float32)
        shift = shaped("shift", scale * zero_point, result)
        return cast(node, call(aten.sub.Tensor, result, shift), dtype)
    bounds = (given["quant_min"], given["quant_max"])
    if is_shifted:
        # Torch rounds to even before it adds the zero point, which may be odd.
        x = cast(node, x, torch.float32)
        x = call(aten.mul.Tensor, x, shaped("factor", 1 / scale, x))
        x = call(aten.round.default, x)
        x = call(aten.add.Tensor, x, shaped("zero_point", zero_point, x))
        scale = torch.ones_like(scale)
    if bounds != _INT8:
        x = call(aten.maximum.default, x, shaped("low", scale * bounds[0], x))
        x = call(aten.minimum.default, x, shaped("high", scale * bounds[1], x))
    zero = _insert(node, "zero", torch.zeros(scale.shape, dtype=torch.int8))
    _become(node, quantize_linear, x, _insert(node, "scale", scale), zero, axis)
    return None


def _become(node: Node, target: Any, *args: Any) -> None:  # noqa: ANN401
    """Call another operator in a node, whose name the layers keep."""
    node.target, node.args, node.kwargs = target, args, {}


def _insert(node: Node, what: str, value: Tensor) -> Node:
    return insert_constant(node, f"_constant_{node.name}_{what}", value.clone())


def _constant(node: Node, value: Any) -> Tensor:  # noqa: ANN401
    """Return a scale or zero point as float32; of one number, without dimensions.

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


def _moved(node: Node, value: Node) -> Node:
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
    return _insert(node, "moved", tensor.contiguous())


def add_quantize_layer(layers: Layers, args: Any, kwargs: Any) -> Any:  # noqa: ANN401
    """Add the layer of one ``quantize_linear``."""
    x, scale, zero, axis = args
    return _add(layers, layers.net.add_quantize, x, scale, axis, zero.dtype)


def add_dequantize_layer(layers: Layers, args: Any, kwargs: Any) -> Any:  # noqa: ANN401
    """Add the layer of one ``dequantize_linear``."""
    return _add(layers, layers.net.add_dequantize, *args)


def _add(layers: Layers, add: Any, x: Any, scale: Tensor, axis: int, dtype: torch.dtype) -> Any:  # noqa: ANN401
    factor = layers.tensor(scale, "scale", dtype=torch.float32)
    kind = "fp8" if dtype is torch.float8_e4m3fn else str(dtype).removeprefix("torch.")
    layer = add(layers.tensor(x, "input"), factor, getattr(layers.trt, kind))
    if scale.dim():
        layer.axis = axis
    return layers.result(layer, "layer")


INT8_WEIGHTS: Final = Operator("int8 weights", (aten._to_copy.default,), rewrite=keep_weights_int8)
FAKE_QUANTIZED: Final = Operator("fake_quantize", (FAKE_QUANTIZE,), rewrite=split_fake_quantize)
# Which of their calls are supported: ops/quantize.py.
QUANTIZE: Final = Operator(
    "quantize",
    (_QUANTIZE, _DEQUANTIZE, _QUANTIZE_CHANNELS, _DEQUANTIZE_CHANNELS),
    rewrite=to_linear,
)
QUANTIZE_LINEAR: Final = Operator(
    "quantize_linear", (quantize_linear,), add_layer=add_quantize_layer
)
DEQUANTIZE_LINEAR: Final = Operator(
    "dequantize_linear", (dequantize_linear,), add_layer=add_dequantize_layer
)
