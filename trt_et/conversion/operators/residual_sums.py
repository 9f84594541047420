"""Sums that TensorRT-RTX computes in the kernel of the product before them.

With ``precision=``, the residual stream of a transformer stays float32: each layer adds a product
in float16, widened, to it. TensorRT-RTX 1.5 computes such a sum together with the normalization
after it, in a kernel whose source the engine holds once for each layer (0.14 MB). It computes a sum
of matrices in the product's kernel instead, if a reshape separates it from the normalization; the
normalizations of all layers then have one kernel. So these sums are computed as matrices.

Dynamic sizes stay as they are: their kernels are held for each layer either way.
"""

from __future__ import annotations

import math
from typing import Any, Final

import torch
from torch.fx import Node

from trt_et.conversion.operator import Operator
from trt_et.graph.insertion import insert_call
from trt_et.graph.operators import HALF_FLOATS

aten = torch.ops.aten

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
