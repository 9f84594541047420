"""Quantize and dequantize operators in the form that TensorRT has layers for, and those layers.

Torch-TensorRT's converters know only the quantize operators of other tools.
"""

from __future__ import annotations

from typing import Any, Final

import torch
import torch.ao.quantization.fx._decomposed  # Registers the operators of PT2E.
from torch._ops import OpOverload
from torch.fx import Node

from trt_et.conversion.layers import Layers
from trt_et.conversion.operator import Operator
from trt_et.errors import BuilderError
from trt_et.graph.arguments import named_arguments
from trt_et.graph.insertion import insert_call, insert_constant
from trt_et.graph.operators import ATTENTION, BATCH_PRODUCTS, MOVES
from trt_et.ops.fake_quantize import FAKE_QUANTIZE, FP8_LIMIT, SMALLEST_AMAX, limits
from trt_et.ops.quantize import constant_source, is_fp8, is_weight_cast

_operators = torch.ops.quantized_decomposed
_QUANTIZE: Final = _operators.quantize_per_tensor.default
_DEQUANTIZE: Final = _operators.dequantize_per_tensor.default
_QUANTIZE_CHANNELS: Final = _operators.quantize_per_channel.default
_DEQUANTIZE_CHANNELS: Final = _operators.dequantize_per_channel.default

_INT8: Final = (-128, 127)  # TensorRT's layer clamps to these.
_TO_ZERO: Final = 2.0**100  # A scale that turns all numbers into zeros.


def keep_weights_int8(node: Node) -> Node | None:
    """Replace a cast of int8 weights to floats by dequantizing with the scale 1.

    Torch-TensorRT would compute the cast, and the engine would hold floats; TensorRT casts no int8.
    """
    source = constant_source(node.args[0]) if is_weight_cast(node) else None
    if source is None or source.op != "get_attr":
        return None
    args = (node.args[0], 1.0, 0, *_INT8, torch.int8)
    return _call(node, _DEQUANTIZE, args, node.meta["val"])


def split_fake_quantize(node: Node) -> Node | None:
    """Split an operator that quantizes to int8 and dequantizes into PT2E's two operators.

    So a program quantized by modelopt becomes the same engine as one quantized by PT2E.
    """
    given = named_arguments(node)
    source = None if is_fp8(node) else constant_source(given["amax"])
    if source is None or source.op != "get_attr":
        return None  # The layer's converter reports it.
    owner: Any = node.graph.owning_module
    amax = getattr(owner, str(source.target)).detach().to(torch.float32)
    low, high = (int(n) for n in limits(8, 0, given["unsigned"], given["narrow_range"]))
    scale = torch.where(amax <= SMALLEST_AMAX, _TO_ZERO, amax / high)
    value = node.meta["val"]
    how: tuple[Any, ...]
    if scale.numel() == 1:
        how = (scale.item(), 0, low, high, torch.int8)
        quantize, dequantize = _QUANTIZE, _DEQUANTIZE
    else:
        axis = next(i for i, size in enumerate(scale.shape) if size != 1)
        axis += value.dim() - scale.dim()
        zeros = torch.zeros(scale.numel(), dtype=torch.int64)
        constants = (
            insert_constant(node, f"_{name}_{node.name}", constant)
            for name, constant in (("scales", scale.reshape(-1)), ("zeros", zeros))
        )
        how = (*constants, axis, low, high, torch.int8)
        quantize, dequantize = _QUANTIZE_CHANNELS, _DEQUANTIZE_CHANNELS
    quantized = _call(node, quantize, (given["input"], *how), value.to(torch.int8))
    return _call(node, dequantize, (quantized, *how), value)


def _call(node: Node, target: OpOverload, args: tuple[Any, ...], value: torch.Tensor) -> Node:
    kwargs: dict[str, Any] = {"out_dtype": value.dtype} if value.dtype is not torch.int8 else {}
    with node.graph.inserting_before(node):
        new = node.graph.call_function(target, args, kwargs)
    new.meta = {**node.meta, "val": value}
    return new


def add_quantize_layer(layers: Layers, args: Any, kwargs: Any) -> Any:  # noqa: ANN401
    """Add the layers of one of PT2E's operators.

    Raises:
        BuilderError: The scale is no constant.
    """
    given = _named(layers, args, kwargs)
    parts = _Parts(layers, given)
    if "dequantize" in str(layers.node.target):
        return parts.dequantize(given["input"], layers.node.meta["val"].dtype)
    return parts.quantize(given["input"], (given["quant_min"], given["quant_max"]))


def add_fp8_layers(layers: Layers, args: Any, kwargs: Any) -> Any:  # noqa: ANN401
    """Add the layers that quantize to fp8 (e4m3) and dequantize; weights stay fp8 between the two.

    Raises:
        BuilderError: The scale is no constant.
    """
    given = _named(layers, args, kwargs)
    amax = given["amax"]
    if not isinstance(amax, torch.Tensor) or amax.numel() != 1:
        raise BuilderError(
            f"the amax of {layers.node.name} is no single constant; TensorRT needs one for fp8. "
            "Exclude the node (excluded_ops=...)"
        )
    largest = amax.detach().to(torch.float32).reshape(())
    scale = (largest if largest > SMALLEST_AMAX else torch.ones(())) / FP8_LIMIT
    value = layers.tensor(scale, "scale", dtype=torch.float32)
    source = layers.tensor(given["input"], "input")
    quantized = layers.result(layers.net.add_quantize(source, value, layers.trt.fp8), "quantize")
    dtype = _type(layers, layers.node.meta["val"].dtype)
    return layers.result(layers.net.add_dequantize(quantized, value, dtype), "dequantize")


def _named(layers: Layers, args: Any, kwargs: Any) -> dict[str, Any]:  # noqa: ANN401
    target: Any = layers.node.target
    names = (argument.name for argument in target._schema.arguments)
    given: dict[str, Any] = dict(zip(names, args, strict=False))
    given.update(kwargs)
    return given


def _type(layers: Layers, dtype: torch.dtype) -> Any:  # noqa: ANN401
    return getattr(layers.trt, str(dtype).removeprefix("torch."))


class _Parts:
    """The layers of one of PT2E's operators."""

    def __init__(self, layers: Layers, given: dict[str, Any]) -> None:
        self._layers = layers
        node, trt = layers.node, layers.trt
        scale = given["scales"] if "scales" in given else given["scale"]
        zero_point = given["zero_points"] if "scales" in given else given["zero_point"]
        for what, value in (("scale", scale), ("zero point", zero_point)):
            if isinstance(value, trt.ITensor):
                raise BuilderError(
                    f"the {what} of {node.name} is an input of the engine; TensorRT needs a "
                    "constant. Exclude the node (excluded_ops=...)"
                )
        self._scale = torch.as_tensor(scale, dtype=torch.float32)
        self._zero_point = torch.as_tensor(0 if zero_point is None else zero_point)
        self._zero_point = self._zero_point.to(torch.float32).expand(self._scale.shape)
        rank = node.meta["val"].dim()
        self._axis = given["axis"] % rank if "axis" in given else None
        # A constant of as many dimensions as the other tensor.
        self._shape = [1] * rank
        if self._axis is not None:
            self._shape[self._axis] = -1

    def quantize(self, source: Any, bounds: tuple[int, int]) -> Any:  # noqa: ANN401
        layers, scale, operations = self._layers, self._scale, self._layers.trt.ElementWiseOperation
        tensor = layers.tensor(source, "input")
        if bool(self._zero_point.any()):
            # Torch rounds to even before it adds the zero point, which may be odd.
            tensor = layers.cast(tensor, torch.float32, "float32")
            tensor = self._combined(tensor, 1 / scale, operations.PROD, "quotient")
            rounded = layers.net.add_unary(tensor, layers.trt.UnaryOperation.ROUND)
            tensor = layers.result(rounded, "round")
            tensor = self._combined(tensor, self._zero_point, operations.SUM, "zero_point")
            scale = torch.ones_like(scale)
        if bounds != _INT8:
            tensor = self._combined(tensor, scale * bounds[0], operations.MAX, "low")
            tensor = self._combined(tensor, scale * bounds[1], operations.MIN, "high")
        layer = layers.net.add_quantize(tensor, self._constant(scale), layers.trt.int8)
        return self._result(layer, "quantize")

    def dequantize(self, source: Any, dtype: torch.dtype) -> Any:  # noqa: ANN401
        layers, is_shifted = self._layers, bool(self._zero_point.any())
        tensor = layers.tensor(source, "input")
        # In half precision, the difference of two close numbers has few digits.
        kind = _type(layers, torch.float32 if is_shifted else dtype)
        layer = layers.net.add_dequantize(tensor, self._constant(self._scale), kind)
        tensor = self._result(layer, "dequantize")
        if not is_shifted:
            return tensor
        shift = self._scale * self._zero_point
        tensor = self._combined(tensor, shift, layers.trt.ElementWiseOperation.SUB, "shift")
        return layers.cast(tensor, dtype, "shifted")

    def _combined(self, tensor: Any, value: torch.Tensor, operation: Any, what: str) -> Any:  # noqa: ANN401
        shaped = value.reshape(self._shape) if self._shape else value
        constant = self._layers.tensor(shaped, what, dtype=tensor.dtype)
        layer = self._layers.net.add_elementwise(tensor, constant, operation)
        return self._layers.result(layer, f"{what}_elementwise")

    def _constant(self, scale: torch.Tensor) -> Any:  # noqa: ANN401
        return self._layers.tensor(scale, "scale", dtype=torch.float32)

    def _result(self, layer: Any, what: str) -> Any:  # noqa: ANN401
        if self._axis is not None:
            layer.axis = self._axis
        return self._layers.result(layer, what)


# Which of their calls are supported: ops/quantize.py.
QUANTIZE: Final = Operator(
    "quantize",
    (_QUANTIZE, _DEQUANTIZE, _QUANTIZE_CHANNELS, _DEQUANTIZE_CHANNELS),
    add_layer=add_quantize_layer,
)
INT8_WEIGHTS: Final = Operator(
    "int8 weights", (torch.ops.aten._to_copy.default,), rewrite=keep_weights_int8
)
FAKE_QUANTIZED: Final = Operator(
    "fake_quantize", (FAKE_QUANTIZE,), rewrite=split_fake_quantize, add_layer=add_fp8_layers
)


# Scales of quantized activations, as vectors: TensorRT-RTX then stores fewer kernels. An engine of
# TensorRT-RTX 1.6 holds the source of each kernel that it generates, 0.13 MB. Layers with equal
# kernels share one source, unless a constant number differs, such as the scale of a tensor;
# constant vectors may differ. So the tensor is multiplied by a vector of the scale's reciprocal,
# and quantized with the scale 1. These are the products that PT2E's operator computes.

aten = torch.ops.aten
_SMALLEST: Final = torch.finfo(torch.float32).smallest_normal


def scale_by_vector(node: Node) -> Node | None:
    """Return a call that quantizes with the scale 1, after a product with a vector."""
    source, scale, *how = named_arguments(node).values()
    if not _SMALLEST <= scale <= 1 / _SMALLEST or _is_constant(source):
        return None
    if _keeps_scale(source, scale) or _is_of_attention(source):
        return None
    shape = source.meta["val"].shape
    axes = [axis for axis, size in enumerate(shape) if isinstance(size, int) and size > 1]
    if not axes:
        return None
    sizes = [size if axis == axes[-1] else 1 for axis, size in enumerate(shape)]
    vector = insert_constant(
        node, f"_reciprocal_{node.name}", torch.full(sizes, 1 / scale, dtype=torch.float32)
    )
    if source.meta["val"].dtype is not torch.float32:
        source = insert_call(node, aten._to_copy.default, source, dtype=torch.float32)
    return insert_call(
        node, _QUANTIZE, insert_call(node, aten.mul.Tensor, source, vector), 1.0, *how
    )


def _is_constant(source: Node) -> bool:
    origin = constant_source(source)
    return origin is None or origin.op == "get_attr"


def _keeps_scale(source: Node, scale: float) -> bool:
    """Return whether a tensor has been int8 with this scale, as before a pooling.

    TensorRT then computes the operator between the two with int8 numbers.
    """
    return any(
        each.target is _DEQUANTIZE and each.args[1] == scale
        for each in (source, *source.all_input_nodes)
    )


def _is_of_attention(source: Node) -> bool:
    """Return whether a tensor is a moved attention, or a moved product of two activations.

    The kernel of an attention writes int8 itself if nothing is between the two.
    """
    while source.target in MOVES - {aten.unsqueeze.default}:
        source = source.all_input_nodes[0]
    if source.target is ATTENTION:
        return True
    return source.target in BATCH_PRODUCTS and not any(map(_is_constant, source.all_input_nodes))


ACTIVATION_SCALE: Final = Operator(
    "activation scale",
    (_QUANTIZE,),
    rewrite=scale_by_vector,
    library="tensorrt_rtx",
)
