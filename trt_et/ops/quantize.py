"""Find quantize and dequantize operators that TensorRT has layers for.

PT2E quantization uses ``quantized_decomposed`` operators; modelopt uses one operator that quantizes
and dequantizes (``fake_quantize``). TensorRT has layers for constant scales and a zero point
of 0. Another zero point becomes a sum outside the layer.
"""

from __future__ import annotations

from typing import Final

import torch
from torch._ops import OpOverload
from torch.fx import Node

from trt_et.graph.arguments import named_arguments
from trt_et.graph.operators import FLOATS, MOVES
from trt_et.ops.fake_quantize import FAKE_QUANTIZE, FOREIGN_NAME

aten = torch.ops.aten

_NAMESPACE: Final = "quantized_decomposed"
_LAYERS: Final = frozenset(
    f"{_NAMESPACE}::{what}_per_{part}"
    for what in ("quantize", "dequantize")
    for part in ("tensor", "channel")
)
_FAKE: Final = frozenset({FOREIGN_NAME, FAKE_QUANTIZE._schema.name})
_BITS: Final = ((8, 0), (8, 4))  # Bits, bits of the exponent: int8, e4m3.
_SCALES: Final = ("scales", "zero_points", "amax")

FP8_CAPABILITY: Final = (8, 9)
"""The least compute capability with 8-bit floats."""

QUANTIZED_DTYPES: Final = frozenset({torch.int8})
"""The results of TensorRT's quantize layers; no other layer uses them."""


def is_quantization(target: object) -> bool:
    """Return whether an operator quantizes, dequantizes, or computes parameters for that."""
    return isinstance(target, OpOverload) and (
        target.namespace == _NAMESPACE or target._schema.name in _FAKE
    )


def is_quantize_layer(target: object) -> bool:
    """Return whether an operator can be one of TensorRT's quantize layers, for some arguments."""
    return (
        isinstance(target, OpOverload)
        and target._schema.name in _LAYERS
        and target._overloadname == "default"
    )


def is_fake_quantize(target: object) -> bool:
    """Return whether an operator quantizes and dequantizes in one call."""
    return isinstance(target, OpOverload) and target._schema.name in _FAKE


def is_fp8(node: Node) -> bool:
    """Return whether a node quantizes to 8-bit floats."""
    return is_fake_quantize(node.target) and named_arguments(node)["exponent_bits"] != 0


def moves_numbers(node: Node) -> bool:
    """Return whether a node only changes the shape or order of its tensor."""
    return node.target in MOVES


def is_weight_cast(node: Node) -> bool:
    """Return whether a node casts int8 numbers to floats, which TensorRT does for constants."""
    if node.target is not aten._to_copy.default or not isinstance(node.args[0], Node):
        return False
    before, after = (n.meta.get("val") for n in (node.args[0], node))
    return (
        isinstance(before, torch.Tensor)
        and isinstance(after, torch.Tensor)
        and before.dtype in QUANTIZED_DTYPES
        and after.dtype in FLOATS
    )


def constant_source(value: object) -> Node | None:
    """Return the node that a value's numbers come from unchanged; None if it is no node."""
    while isinstance(value, Node) and moves_numbers(value):
        value = value.args[0]
    return value if isinstance(value, Node) else None


def scale_arguments(node: Node) -> dict[str, object]:
    """Return the arguments of a quantize operator that must be constants, by name."""
    given = named_arguments(node)
    return {name: given[name] for name in _SCALES if isinstance(given.get(name), Node)}


def quantization_refusal(node: Node) -> str | None:
    """Return why TensorRT has no layer for a node of ``is_quantization``; None if it has one."""
    if is_fake_quantize(node.target):
        return _fake_quantize_refusal(node)
    if not is_quantize_layer(node.target):
        return "its scale is computed at run time, or for parts of a channel; TensorRT's is fixed"
    arguments = named_arguments(node)
    if arguments["dtype"] not in QUANTIZED_DTYPES:
        return f"TensorRT quantizes to int8, not to {arguments['dtype']}"
    for name, source in scale_arguments(node).items():
        if isinstance(source, Node) and source.op == "call_function":
            return f"its {name} are computed at run time; TensorRT's are fixed"
    value = arguments["input"].meta.get("val")
    for tensor in (value, node.meta.get("val")):
        if isinstance(tensor, torch.Tensor) and tensor.dtype not in (*FLOATS, *QUANTIZED_DTYPES):
            return f"TensorRT does not quantize {tensor.dtype} tensors"
    return None


def _fake_quantize_refusal(node: Node) -> str | None:
    arguments = named_arguments(node)
    bits = (arguments["num_bits"], arguments["exponent_bits"])
    if bits not in _BITS:
        return (
            f"TensorRT quantizes to int8 and fp8 (e4m3), not to {bits[0]} bits of which {bits[1]} "
            "are an exponent"
        )
    if arguments["unsigned"]:
        return "TensorRT quantizes to numbers with a sign"
    source = constant_source(arguments["amax"])
    if source is None or source.op == "call_function":
        return "its amax is computed at run time; TensorRT's scale is fixed"
    x, amax = (arguments[name].meta.get("val") for name in ("input", "amax"))
    if not isinstance(x, torch.Tensor) or x.dtype not in FLOATS:
        return f"TensorRT does not quantize {getattr(x, 'dtype', x)} tensors"
    axes = [size for size in amax.shape if size != 1]
    if len(axes) > 1 or amax.dim() > x.dim():
        return "it has a scale for parts of a channel; TensorRT's is for a tensor or a channel"
    if axes and bits[1]:
        return "it has a scale for each channel; TensorRT's fp8 has one for the tensor"
    return None
