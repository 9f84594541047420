"""Convolutions after quantization, and transposed ones with a computed weight."""

from __future__ import annotations

from typing import Any, Final

import torch
import torch.ao.quantization.fx._decomposed  # Registers the operators of PT2E.
from torch.fx import Node

from trt_et.conversion.installed import installed_variant
from trt_et.conversion.operator import Operator
from trt_et.conversion.operators.type_promotion import cast
from trt_et.graph.arguments import named_arguments
from trt_et.graph.insertion import insert_call
from trt_et.graph.operators import ATTENTION, MATRIX_PRODUCTS
from trt_et.ops.quantize import is_quantize_layer

aten = torch.ops.aten

_PRODUCTS: Final = MATRIX_PRODUCTS | {ATTENTION}


def in_bfloat16(node: Node) -> str | None:
    """Refuse a transposed convolution in bfloat16, which TensorRT-RTX 1.5 builds no engine for.

    "Myelin ([type.cpp:186: infer_type] Could not infer output types for operation: ... deconv".
    """
    is_low = node.meta["val"].dtype == torch.bfloat16
    if node.args[6] and is_low and installed_variant() == "tensorrt_rtx":
        return "TensorRT-RTX has no transposed convolution in bfloat16"
    return None


def widen_transposed(node: Node) -> Node | None:
    """Widen a transposed 1-D convolution with a computed weight.

    TensorRT's layer takes two dimensions or more; Torch-TensorRT 2.13 widens constant weights only.
    """
    x, weight, bias, stride, padding, dilation, transposed, extra, groups = node.args
    if not transposed or not isinstance(x, Node) or not isinstance(weight, Node):
        return None
    if x.meta["val"].dim() != 3 or weight.op == "get_attr":
        return None
    window: tuple[Any, ...] = (stride, padding, dilation)
    stride, padding, dilation, extra = (
        [*sizes, neutral] for sizes, neutral in zip((*window, extra), (1, 0, 1, 0), strict=True)
    )
    x, weight = (insert_call(node, aten.unsqueeze.default, tensor, -1) for tensor in (x, weight))
    wide = insert_call(
        node, node.target, x, weight, bias, stride, padding, dilation, True, extra, groups
    )
    return insert_call(node, aten.squeeze.dim, wide, -1)


def multiply_by_scale(node: Node) -> Node | None:
    """Replace a dequantize layer before a convolution by a product with the scale.

    TensorRT-RTX 1.5 makes an int8 convolution of a convolution after a dequantize layer, and has no
    kernel for it (1.7 has):
    "MyelinCheckException: cudnn_impl.cpp:89: CHECK(dtype == myelinTypeFloat || ...)". Layers
    between the two that only move numbers do not prevent this, so the search looks through them.
    The convolution is computed in float; its weights stay int8.
    """
    source = node.args[0]
    if not isinstance(source, Node) or source.op == "get_attr" or not _reaches_convolution(node):
        return None
    arguments = named_arguments(node)
    x = cast(node, arguments["input"], torch.float32)
    if arguments["zero_point"] != 0:
        x = insert_call(node, aten.sub.Tensor, x, arguments["zero_point"])
    result = insert_call(node, aten.mul.Tensor, x, arguments["scale"])
    return cast(node, result, node.meta["val"].dtype)


def _reaches_convolution(node: Node) -> bool:
    seen: set[Node] = set()
    ahead = [node]
    while ahead:
        current = ahead.pop()
        for user in current.users:
            if user.target is aten.convolution.default and user.args[0] is current:
                return True
            if user not in seen and user.target not in _PRODUCTS and not _quantizes(user):
                seen.add(user)
                ahead.append(user)
    return False


def _quantizes(node: Node) -> bool:
    return is_quantize_layer(node.target) and "dequantize" not in str(node.target)


TRANSPOSED_CONVOLUTION: Final = Operator(
    "transposed convolution",
    (aten.convolution.default,),
    unsupported=in_bfloat16,
    rewrite=widen_transposed,
)
QUANTIZED_CONVOLUTION: Final = Operator(
    "quantized convolution",
    (torch.ops.quantized_decomposed.dequantize_per_tensor.default,),
    rewrite=multiply_by_scale,
    library="tensorrt_rtx",
    fixed_in=("tensorrt-rtx", "1.7"),
    upstream="rtx_int8_convolution",
)
