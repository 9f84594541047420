"""Scales of quantized activations, as vectors: TensorRT-RTX then stores fewer kernels.

A TensorRT-RTX 1.6 engine holds the source of each kernel that it generates, 0.13 MB. Layers with
equal kernels share one source, unless a constant number differs, such as the scale of a tensor;
constant vectors may differ. So the tensor is multiplied by a vector of the scale's reciprocal, and
quantized with the scale 1. These are the products that PT2E's operator computes.
"""

from __future__ import annotations

from typing import Final

import torch
import torch.ao.quantization.fx._decomposed  # Registers the operators.
from torch.fx import Node

from trt_et.conversion.operator import Operator
from trt_et.graph.arguments import named_arguments
from trt_et.graph.insertion import insert_call, insert_constant
from trt_et.graph.operators import ATTENTION, BATCH_PRODUCTS, MOVES
from trt_et.ops.quantize import constant_source

aten = torch.ops.aten
_operators = torch.ops.quantized_decomposed
_QUANTIZE: Final = _operators.quantize_per_tensor.default
_DEQUANTIZE: Final = _operators.dequantize_per_tensor.default
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
