"""Products: convolutions, ``baddbmm``, and the sums after linear layers."""

from __future__ import annotations

import math
from typing import Any, Final

import torch
import torch.ao.quantization.fx._decomposed  # Registers the operators of PT2E.
from torch import Tensor
from torch.fx import Node

from trt_et.conversion.installed import installed_variant
from trt_et.conversion.operator import Operator
from trt_et.conversion.operators.types import cast
from trt_et.graph.arguments import named_arguments
from trt_et.graph.constants import constant_value
from trt_et.graph.insertion import insert_call, insert_constant
from trt_et.graph.operators import ATTENTION, HALF_FLOATS, MATRIX_PRODUCTS
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


def fit_transposed(node: Node) -> Node | None:
    """Replace transposed convolutions that TensorRT's layer or the converter does not have."""
    if not node.args[6]:
        return None
    dilate(node)
    return pad_output(node) or widen_transposed(node)


def dilate(node: Node) -> None:
    """Put the gaps of a dilated kernel into a constant weight.

    TensorRT-RTX has no transposed convolution with both a stride and a dilation.
    """
    args: Any = node.args
    weight, stride, dilation = args[1], args[3], args[5]
    if weight.op != "get_attr" or max(stride) == 1 or max(dilation) == 1:
        return
    narrow: Any = getattr(node.graph.owning_module, str(weight.target))
    sizes = [(n - 1) * by + 1 for n, by in zip(narrow.shape[2:], dilation, strict=True)]
    wide = narrow.new_zeros(*narrow.shape[:2], *sizes)
    places = [slice(None)] * 2 + [slice(None, None, by) for by in dilation]
    wide[tuple(places)] = narrow
    node.update_arg(1, insert_constant(node, f"_{node.name}_dilated", wide))
    node.update_arg(5, [1] * len(dilation))


def pad_output(node: Node) -> Node | None:
    """Append zeros to the output, before the bias; TensorRT's layer appends up to its padding."""
    args: Any = node.args
    bias, padding, extra = args[2], args[4], args[7]
    beyond = [max(more - known, 0) for more, known in zip(extra, padding, strict=True)]
    if not any(beyond):
        return None
    within = [min(pair) for pair in zip(extra, padding, strict=True)]
    result = insert_call(node, node.target, *args[:2], None, *args[3:7], within, *args[8:])
    result = widen_transposed(result) or result
    pads = [size for more in reversed(beyond) for size in (0, more)]
    result = insert_call(node, aten.constant_pad_nd.default, result, pads)
    if bias is None:
        return result
    line = insert_call(node, aten.reshape.default, bias, [-1, *([1] * len(beyond))])
    return insert_call(node, aten.add.Tensor, result, line)


def widen_transposed(node: Node) -> Node | None:
    """Widen a transposed 1-D convolution with a computed weight.

    TensorRT's layer takes two dimensions or more; Torch-TensorRT 2.13 widens constant weights only.
    """
    x, weight, bias, stride, padding, dilation, _, extra, groups = node.args
    if not isinstance(x, Node) or not isinstance(weight, Node):
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


def without_zeros(node: Node) -> None:
    """Drop a bias of zeros, which TensorRT adds, in a kernel of its own after some products."""
    bias = node.args[2] if len(node.args) > 2 else None
    value = constant_value(bias) if isinstance(bias, Node) else None
    if value is not None and not value.any():
        node.update_arg(2, None)


ZERO_BIAS: Final = Operator(
    "bias of zeros", (aten.linear.default, aten.convolution.default), rewrite=without_zeros
)
TRANSPOSED_CONVOLUTION: Final = Operator(
    "transposed convolution",
    (aten.convolution.default,),
    unsupported=in_bfloat16,
    rewrite=fit_transposed,
)
QUANTIZED_CONVOLUTION: Final = Operator(
    "quantized convolution",
    (torch.ops.quantized_decomposed.dequantize_per_tensor.default,),
    rewrite=multiply_by_scale,
    library="tensorrt_rtx",
    fixed_in=("tensorrt-rtx", "1.7"),
    upstream="rtx_int8_convolution",
)


def baddbmm(x: Tensor, first: Tensor, second: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:  # noqa: ANN401
    """Add a product of the same dtype; torch writes half precision out in float32.

    A factor below 1 comes before the product, which might overflow without it: the scores of an
    attention in float16.
    """
    if abs(alpha) < 1:
        first = first * alpha
    product = torch.bmm(first, second)
    if abs(alpha) > 1 or alpha == -1:
        product = product * alpha
    if beta == 0:
        return product  # The summand does not count, even if it is no number.
    return product + (x if beta == 1 else x * beta)


BADDBMM: Final = Operator("baddbmm", (aten.baddbmm.default,), decompose=baddbmm)


# With ``precision=``, the residual stream of a transformer stays float32: each layer adds a product
# in float16, widened, to it. TensorRT-RTX 1.5 computes such a sum together with the normalization
# after it, in a kernel whose source the engine holds once for each layer (0.14 MB). It computes a
# sum of matrices in the product's kernel instead, if a reshape separates it from the normalization;
# the normalizations of all layers then have one kernel. So these sums are computed as matrices.
# Dynamic sizes stay as they are: their kernels are held for each layer either way.

_COPIES: Final = (aten._to_copy.default, aten.clone.default)


def add_as_matrices(node: Node) -> Node | None:
    """Return the sum of a widened linear layer and a tensor, computed in two dimensions."""
    first, second = node.args[:2]
    if not isinstance(first, Node) or not isinstance(second, Node) or node.kwargs:
        return None
    value = node.meta["val"]
    shape = value.shape
    if (
        value.dtype is not torch.float32
        or value.dim() < 3
        or any(each.meta["val"].shape != shape for each in (first, second))
        or not all(isinstance(size, int) for size in shape)
    ):
        return None
    product, linear = first, _widened_linear(first)
    if linear is None:
        product, linear = second, _widened_linear(second)
    if linear is None:
        return None
    if math.prod(shape[:-2]) == 1:
        # A reshape that drops sizes of 1 separates nothing: the product has to be one of matrices.
        source: Any = linear.args[0]
        rows = insert_call(node, aten.reshape.default, source, [-1, source.meta["val"].shape[-1]])
        low = insert_call(node, linear.target, rows, *linear.args[1:])
        matrix = insert_call(node, aten._to_copy.default, low, dtype=torch.float32)
    else:
        matrix = insert_call(node, aten.reshape.default, product, [-1, shape[-1]])
    other = second if product is first else first
    rows = insert_call(node, aten.reshape.default, other, [-1, shape[-1]])
    operands = (matrix, rows) if product is first else (rows, matrix)
    total = insert_call(node, aten.add.Tensor, *operands)
    return insert_call(node, aten.reshape.default, total, list(shape))


def _widened_linear(node: Node) -> Node | None:
    """Return the linear layer in half precision whose result a node widens to float32."""
    while node.target in _COPIES and len(node.users) == 1:
        source: Any = node.args[0]
        node = source
    is_linear = node.target is aten.linear.default and len(node.users) == 1
    return node if is_linear and node.meta["val"].dtype in HALF_FLOATS else None


RESIDUAL_SUM: Final = Operator(
    "residual sum",
    (aten.add.Tensor,),
    rewrite=add_as_matrices,
    library="tensorrt_rtx",
)
