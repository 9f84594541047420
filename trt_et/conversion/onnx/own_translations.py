"""Translates calls that torch's ONNX exporter does not know, or translates wrongly."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch

from trt_et.conversion.onnx.cache_update import register_cache_update
from trt_et.conversion.onnx.grouped_weights import register_dequantize_groups
from trt_et.conversion.onnx.quantize import dequantize_linear, quantize_linear

aten = torch.ops.aten


def register_own_translations(registry: Any) -> None:  # noqa: ANN401
    """Add functions that add ONNX's operators for a call to the exporter's registry."""
    from onnxscript import opset20 as op

    def quantize(x: Any, scale: Any, zero: Any, axis: int) -> Any:  # noqa: ANN401
        return op.QuantizeLinear(x, scale, zero, axis=axis)

    def dequantize(x: Any, scale: Any, axis: int) -> Any:  # noqa: ANN401
        return op.DequantizeLinear(x, scale, axis=axis)

    registry.register_op(quantize_linear, quantize)
    registry.register_op(dequantize_linear, dequantize)
    register_dequantize_groups(registry)
    register_cache_update(registry)
    for target in (aten.div.Tensor_mode, aten.div.Scalar_mode):
        registry.register_op(target, _division(registry.get_decomps(target)[0].onnx_function))
    registry.register_op(operator.floordiv, _divided_size)
    for sampler in (aten.grid_sampler.default, aten.grid_sampler_2d.default):
        registry.register_op(sampler, _sample_grid)


def _sample_grid(x: Any, grid: Any, mode: int, padding: int, align_corners: bool) -> Any:  # noqa: ANN401
    """Name the interpolation as opset 20 does: the exporter uses the names of opset 16."""
    from onnxscript import opset20 as op

    return op.GridSample(
        x,
        grid,
        mode=("linear", "nearest", "cubic")[mode],
        padding_mode=("zeros", "border", "reflection")[padding],
        align_corners=int(align_corners),
    )


def _divided_size(x: Any, y: Any) -> Any:  # noqa: ANN401
    """Divide sizes as Python does: the exporter rounds negative quotients up."""
    import onnx_ir as ir

    x, y = (ir.tensor(n, dtype=ir.DataType.INT64) if isinstance(n, int) else n for n in (x, y))
    return _floor_of_quotient(x, y, ir.DataType.INT64)


def _floor_of_quotient(x: Any, y: Any, dtype: Any) -> Any:  # noqa: ANN401
    import onnx_ir as ir
    from onnxscript import opset20 as op

    quotient = op.Div(x, y)  # Truncated.
    zero = ir.tensor(0, dtype=dtype)
    rest = op.Sub(x, op.Mul(quotient, y))
    differs = op.Xor(op.Less(rest, zero), op.Less(y, zero))
    is_above = op.And(op.Not(op.Equal(rest, zero)), differs)
    return op.Sub(quotient, op.Cast(is_above, to=dtype))


def _division(divide_floats: Callable[..., Any]) -> Callable[..., Any]:
    import onnx_ir as ir
    from onnxscript import opset20 as op

    def divide(x: Any, y: Any, rounding_mode: str | None = None) -> Any:  # noqa: ANN401
        """Divide integers as integers: the exporter does it in float32."""
        if not x.dtype.is_integer() or rounding_mode is None:
            return divide_floats(x, y, rounding_mode=rounding_mode)
        y = ir.tensor(y, dtype=x.dtype) if isinstance(y, int) else y
        if rounding_mode == "trunc":
            return op.Div(x, y)
        return _floor_of_quotient(x, y, x.dtype)

    return divide
