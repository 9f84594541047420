"""Quantize and dequantize operators as TensorRT's layers.

Import it only after Torch-TensorRT (see ``registry.py``), whose converters know only the quantize
operators of other tools.
"""

from __future__ import annotations

from typing import Any, Final

import tensorrt as trt
import torch
from torch.fx import Node
from torch_tensorrt.dynamo.conversion.converter_utils import cast_trt_tensor, get_trt_tensor

from trt_et.errors import BuilderError
from trt_et.ops.fake_quantize import FP8_LIMIT, SMALLEST_AMAX

__all__ = ["add_fp8_layers", "add_quantize_layer"]

_LIMITS: Final = (-128, 127)  # TensorRT's layer clamps to these.


def add_quantize_layer(ctx: Any, node: Node, args: Any, kwargs: Any) -> Any:  # noqa: ANN401
    """Add the layers of one operator for which :func:`is_quantize_layer` holds.

    Args:
        ctx: Torch-TensorRT's ``ConversionContext``.
        node: The call.
        args: Its arguments, tensors as TensorRT's or as constants.
        kwargs: Its keyword arguments, in the same form.

    Returns:
        TensorRT's tensor.

    Raises:
        BuilderError: The scale is no constant.
    """
    given = dict(zip((a.name for a in node.target._schema.arguments), args, strict=False))  # type: ignore[union-attr]
    given |= kwargs
    layers = _Layers(ctx, node, given)
    if "dequantize" in str(node.target):
        return layers.dequantize(given["input"], node.meta["val"].dtype)
    return layers.quantize(given["input"], (given["quant_min"], given["quant_max"]))


def add_fp8_layers(ctx: Any, node: Node, args: Any, kwargs: Any) -> Any:  # noqa: ANN401
    """Add the layers that quantize to fp8 (e4m3) and dequantize; weights stay fp8 between the two.

    Args:
        ctx: Torch-TensorRT's ``ConversionContext``.
        node: A call of ``trt_et::fake_quantize``.
        args: Its arguments, tensors as TensorRT's or as constants.
        kwargs: Its keyword arguments, in the same form.

    Returns:
        TensorRT's tensor.

    Raises:
        BuilderError: The scale is no constant.
    """
    given = dict(zip((a.name for a in node.target._schema.arguments), args, strict=False))  # type: ignore[union-attr]
    amax = (given | kwargs)["amax"]
    if not isinstance(amax, torch.Tensor) or amax.numel() != 1:
        raise BuilderError(
            f"the amax of {node.name} is no single constant; TensorRT needs one for fp8. Exclude "
            "the node (excluded_ops=...)"
        )
    largest = amax.detach().to(torch.float32).reshape(())
    scale = (largest if largest > SMALLEST_AMAX else torch.ones(())) / FP8_LIMIT
    value = get_trt_tensor(ctx, scale, f"{node.name}_scale", dtype=torch.float32)
    source = get_trt_tensor(ctx, (given | kwargs)["input"], f"{node.name}_input")
    quantize = ctx.net.add_quantize(source, value, trt.fp8)
    quantize.name = f"{node.name}_quantize"
    dequantize = ctx.net.add_dequantize(
        quantize.get_output(0), value, _TYPES[node.meta["val"].dtype]
    )
    dequantize.name = f"{node.name}_dequantize"
    return dequantize.get_output(0)


class _Layers:
    """The layers of one operator."""

    def __init__(self, ctx: Any, node: Node, given: dict[str, Any]) -> None:  # noqa: ANN401
        self._ctx = ctx
        self._name = node.name
        scale = given["scales"] if "scales" in given else given["scale"]
        zero_point = given["zero_points"] if "scales" in given else given["zero_point"]
        for what, value in (("scale", scale), ("zero point", zero_point)):
            if isinstance(value, trt.ITensor):
                raise BuilderError(
                    f"the {what} of {node.name} is an input of the engine; TensorRT needs a "
                    "constant. Exclude the node (excluded_ops=...)"
                )
        self._scale = torch.as_tensor(scale).to(torch.float32)
        self._zero_point = torch.as_tensor(0 if zero_point is None else zero_point)
        self._zero_point = self._zero_point.to(torch.float32).expand(self._scale.shape)
        rank = node.meta["val"].dim()
        self._axis = given["axis"] % rank if "axis" in given else None
        # A constant of as many dimensions as the other tensor.
        self._shape = [1] * rank
        if self._axis is not None:
            self._shape[self._axis] = -1

    def quantize(self, source: Any, limits: tuple[int, int]) -> Any:  # noqa: ANN401
        tensor, scale = self._tensor(source, "input"), self._scale
        if bool(self._zero_point.any()):
            # Torch rounds to even before it adds the zero point, which may be odd.
            tensor = cast_trt_tensor(self._ctx, tensor, torch.float32, f"{self._name}_float32")
            tensor = self._combined(tensor, 1 / scale, trt.ElementWiseOperation.PROD, "quotient")
            rounded = self._ctx.net.add_unary(tensor, trt.UnaryOperation.ROUND)
            rounded.name = f"{self._name}_round"
            tensor = self._combined(
                rounded.get_output(0), self._zero_point, trt.ElementWiseOperation.SUM, "zero_point"
            )
            scale = torch.ones_like(scale)
        if limits != _LIMITS:
            tensor = self._clamped(tensor, limits, scale)
        layer = self._ctx.net.add_quantize(tensor, self._constant(scale, "scale"), trt.int8)
        return self._result(layer, "quantize")

    def dequantize(self, source: Any, dtype: torch.dtype) -> Any:  # noqa: ANN401
        layer = self._ctx.net.add_dequantize(
            self._tensor(source, "input"), self._constant(self._scale, "scale"), _TYPES[dtype]
        )
        tensor = self._result(layer, "dequantize")
        if not bool(self._zero_point.any()):
            return tensor
        shift = self._scale * self._zero_point
        return self._combined(tensor, shift, trt.ElementWiseOperation.SUB, "shift")

    def _clamped(self, tensor: Any, limits: tuple[int, int], scale: torch.Tensor) -> Any:  # noqa: ANN401
        for limit, operation, what in (
            (limits[0], trt.ElementWiseOperation.MAX, "low"),
            (limits[1], trt.ElementWiseOperation.MIN, "high"),
        ):
            tensor = self._combined(tensor, scale * limit, operation, what)
        return tensor

    def _combined(self, tensor: Any, value: torch.Tensor, operation: Any, what: str) -> Any:  # noqa: ANN401
        shaped = value.reshape(self._shape) if self._shape else value
        constant = get_trt_tensor(self._ctx, shaped, f"{self._name}_{what}", dtype=tensor.dtype)
        layer = self._ctx.net.add_elementwise(tensor, constant, operation)
        layer.name = f"{self._name}_{what}_elementwise"
        return layer.get_output(0)

    def _tensor(self, source: Any, what: str) -> Any:  # noqa: ANN401
        return get_trt_tensor(self._ctx, source, f"{self._name}_{what}")

    def _constant(self, value: torch.Tensor, what: str) -> Any:  # noqa: ANN401
        return get_trt_tensor(self._ctx, value, f"{self._name}_{what}", dtype=torch.float32)

    def _result(self, layer: Any, what: str) -> Any:  # noqa: ANN401
        if self._axis is not None:
            layer.axis = self._axis
        layer.name = f"{self._name}_{what}"
        return layer.get_output(0)


_TYPES: Final = {
    torch.float32: trt.float32,
    torch.float16: trt.float16,
    torch.bfloat16: trt.bfloat16,
}
