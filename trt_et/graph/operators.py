"""Kinds of ATen operators and of dtypes, as PyTorch's documentation groups them.

A user that means fewer or more of them writes the difference: ``MOVES - {aten.unsqueeze.default}``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import torch
from torch._ops import OpOverload

aten = torch.ops.aten

_Operators = frozenset[OpOverload]

HALF_FLOATS: Final = frozenset({torch.float16, torch.bfloat16})
FLOATS: Final = HALF_FLOATS | {torch.float32}
INTEGERS: Final = frozenset({torch.int32, torch.int64})

COPIES: Final[_Operators] = frozenset({aten.alias.default, aten.clone.default, aten.detach.default})
RESHAPES: Final[_Operators] = frozenset(
    {aten.reshape.default, aten.view.default, aten._unsafe_view.default}
)
PERMUTES: Final[_Operators] = frozenset({aten.permute.default, aten.t.default, aten.transpose.int})
MOVES: Final = COPIES | RESHAPES | PERMUTES | {aten.unsqueeze.default}
"""Their result has each value of their tensor once."""

VIEWS: Final = MOVES | {
    *(aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims, aten.expand.default),
    *(aten.select.int, aten.slice.Tensor, aten.split.Tensor, aten.split_with_sizes.default),
}
"""Their result has values of their tensor: all, some, or some of them repeatedly."""

ATTENTION: Final[OpOverload] = aten.scaled_dot_product_attention.default
CONVOLUTION: Final[OpOverload] = aten.convolution.default
BATCH_PRODUCTS: Final[_Operators] = frozenset({aten.bmm.default, aten.matmul.default})
MATRIX_PRODUCTS: Final = BATCH_PRODUCTS | {
    *(aten.linear.default, aten.mm.default, aten.addmm.default, aten.baddbmm.default),
}
PRODUCTS: Final = MATRIX_PRODUCTS | {ATTENTION, CONVOLUTION}

SOFTMAX: Final[_Operators] = frozenset(
    {aten._softmax.default, aten.softmax.int, aten._safe_softmax.default}
)
ACTIVATIONS: Final[_Operators] = frozenset(
    {
        *(aten.relu.default, aten.relu6.default, aten.gelu.default, aten.silu.default),
        *(aten.sigmoid.default, aten.tanh.default, aten.erf.default, aten.hardtanh.default),
        *(aten.hardsigmoid.default, aten.elu.default, aten.hardswish.default, aten.mish.default),
        *(aten.leaky_relu.default, aten.glu.default, aten.log_sigmoid.default),
        aten._prelu_kernel.default,
    }
)


def short_name(operator: OpOverload) -> str:
    """Return the name of an operator without its overload, and without ``aten::``."""
    return operator._schema.name.removeprefix("aten::")


def names(operators: Iterable[OpOverload]) -> frozenset[str]:
    """Return the short names of operators."""
    return frozenset(map(short_name, operators))
