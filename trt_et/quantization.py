"""Quantize and dequantize operators: which of them are TensorRT's quantize layers.

PT2E quantization leaves ``quantized_decomposed`` operators in a program. TensorRT has layers for
those whose scale is known when the engine is built; their zero point is 0, and any other one is a
shift of the numbers around the layer.
"""

from __future__ import annotations

from typing import Any, Final

import torch
from torch._ops import OpOverload
from torch.fx import Node

__all__ = [
    "QUANTIZED_DTYPES",
    "is_quantization",
    "is_quantize_layer",
    "named_arguments",
    "quantization_refusal",
]

_NAMESPACE: Final = "quantized_decomposed"
_LAYERS: Final = frozenset(
    f"{_NAMESPACE}::{name}"
    for name in (
        "quantize_per_tensor",
        "dequantize_per_tensor",
        "quantize_per_channel",
        "dequantize_per_channel",
    )
)
_FLOATS: Final = (torch.float32, torch.float16, torch.bfloat16)

QUANTIZED_DTYPES: Final = frozenset({torch.int8})
"""What TensorRT's quantize layers make of numbers; only they take and return it."""


def is_quantization(target: object) -> bool:
    """Whether an operator quantizes or dequantizes, or chooses how to."""
    return isinstance(target, OpOverload) and target.namespace == _NAMESPACE


def is_quantize_layer(target: object) -> bool:
    """Whether an operator can be one of TensorRT's quantize layers, whatever its arguments."""
    return (
        isinstance(target, OpOverload)
        and target._schema.name in _LAYERS
        and target._overloadname == "default"
    )


def named_arguments(node: Node) -> dict[str, Any]:
    """The arguments of an operator call by the names in its schema, with defaults.

    Args:
        node: Calls an ``OpOverload`` (plain, without the Edge dialect's wrapper).
    """
    target = node.target
    if not isinstance(target, OpOverload):
        raise TypeError(f"{node.name} calls {target}, which is no operator")
    found: dict[str, Any] = {}
    for index, argument in enumerate(target._schema.arguments):
        if argument.name in node.kwargs:
            found[argument.name] = node.kwargs[argument.name]
        elif index < len(node.args) and not argument.kwarg_only:
            found[argument.name] = node.args[index]
        else:
            found[argument.name] = argument.default_value
    return found


def quantization_refusal(node: Node) -> str | None:
    """Why TensorRT has no layer for a quantize or dequantize operator; None where it has one.

    Args:
        node: Of a plain ATen graph; :func:`is_quantization` holds for its target.
    """
    if not is_quantize_layer(node.target):
        return "its scale is computed at run time, or for parts of a channel; TensorRT's is fixed"
    arguments = named_arguments(node)
    if arguments["dtype"] not in QUANTIZED_DTYPES:
        return f"TensorRT quantizes to int8, not to {arguments['dtype']}"
    for name in ("scales", "zero_points"):
        source = arguments.get(name)
        if isinstance(source, Node) and source.op == "call_function":
            return f"its {name} are computed at run time; TensorRT's are fixed"
    value = arguments["input"].meta.get("val")
    for tensor in (value, node.meta.get("val")):
        if isinstance(tensor, torch.Tensor) and tensor.dtype not in (*_FLOATS, *QUANTIZED_DTYPES):
            return f"TensorRT does not quantize {tensor.dtype} tensors"
    return None
