"""Brings a partition's quantization into the form that TensorRT has layers for."""

from __future__ import annotations

from typing import Any, Final

import torch
import torch.ao.quantization.fx._decomposed  # Registers the operators of PT2E.
from torch._ops import OpOverload
from torch.fx import GraphModule, Node

from trt_et.ops.fake_quantize import SMALLEST_AMAX, limits
from trt_et.ops.quantize import (
    constant_source,
    is_fake_quantize,
    is_fp8,
    is_weight_cast,
    named_arguments,
)

__all__ = ["keep_weights_int8", "split_fake_quantize"]

_INT8: Final = (-128, 127, torch.int8)
_TO_ZERO: Final = 2.0**100  # A scale that turns all numbers into zeros.


def keep_weights_int8(module: GraphModule) -> None:
    """Replace casts of int8 weights to floats by dequantizing with the scale 1.

    Torch-TensorRT would compute the cast, and the engine would hold floats; TensorRT casts no int8.

    Args:
        module: Plain ATen, constants as attributes; changed in place.
    """
    for node in list(module.graph.nodes):
        source = constant_source(node.args[0]) if is_weight_cast(node) else None
        if source is not None and source.op == "get_attr":
            dtype = {"out_dtype": node.meta["val"].dtype}
            args = (node.args[0], 1.0, 0, *_INT8)
            _replace(module, node, _DEQUANTIZE, args, dtype)
    module.recompile()


def split_fake_quantize(module: GraphModule) -> None:
    """Split operators that quantize to int8 and dequantize into PT2E's two operators.

    So a program quantized by modelopt becomes the same engine as one quantized by PT2E.

    Args:
        module: Plain ATen, constants as attributes; changed in place.
    """
    for node in list(module.graph.nodes):
        amax = _amax(module, node) if is_fake_quantize(node.target) and not is_fp8(node) else None
        if amax is not None:
            _split(module, node, amax)
    module.recompile()


def _amax(module: GraphModule, node: Node) -> torch.Tensor | None:
    source = constant_source(named_arguments(node)["amax"])
    if source is None or source.op != "get_attr":
        return None  # The layer's converter reports it.
    value = getattr(module, str(source.target))
    return value if isinstance(value, torch.Tensor) else None


def _split(module: GraphModule, node: Node, amax: torch.Tensor) -> None:
    given = named_arguments(node)
    low, high = (int(n) for n in limits(8, 0, given["unsigned"], given["narrow_range"]))
    amax = amax.detach().to(torch.float32)
    scale = torch.where(amax <= SMALLEST_AMAX, _TO_ZERO, amax / high)
    dtype = node.meta["val"].dtype
    how: tuple[Any, ...]
    if scale.numel() == 1:
        how = (scale.item(), 0, low, high, torch.int8)
        quantize, dequantize = _QUANTIZE, _DEQUANTIZE
    else:
        axis = next(i for i, size in enumerate(scale.shape) if size != 1)
        axis += node.meta["val"].dim() - scale.dim()
        scales = _constant(module, node, "scales", scale.reshape(-1))
        zeros = _constant(module, node, "zeros", torch.zeros(scale.numel(), dtype=torch.int64))
        how = (scales, zeros, axis, low, high, torch.int8)
        quantize, dequantize = _QUANTIZE_CHANNELS, _DEQUANTIZE_CHANNELS
    with module.graph.inserting_before(node):
        quantized = module.graph.call_function(quantize, (given["input"], *how))
    quantized.meta = {**node.meta, "val": node.meta["val"].to(torch.int8)}
    _replace(module, node, dequantize, (quantized, *how), {"out_dtype": dtype})


def _constant(module: GraphModule, node: Node, what: str, value: torch.Tensor) -> Node:
    name = f"_{what}_{node.name}"
    module.register_buffer(name, value)
    with module.graph.inserting_before(node):
        constant = module.graph.get_attr(name)
    constant.meta = {"val": value}
    return constant


def _replace(
    module: GraphModule,
    node: Node,
    target: OpOverload,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> None:
    with module.graph.inserting_before(node):
        new = module.graph.call_function(target, args, kwargs)
    new.meta = dict(node.meta)
    node.replace_all_uses_with(new)
    module.graph.erase_node(node)


_operators = torch.ops.quantized_decomposed
_QUANTIZE: Final = _operators.quantize_per_tensor.default
_DEQUANTIZE: Final = _operators.dequantize_per_tensor.default
_QUANTIZE_CHANNELS: Final = _operators.quantize_per_channel.default
_DEQUANTIZE_CHANNELS: Final = _operators.dequantize_per_channel.default
