"""The operators that an engine runs on uint8 tensors, such as images of a camera.

TensorRT has uint8 in the inputs and outputs of a network only, each with a cast behind it. Inside,
an engine holds these numbers as float32, which has all of them: 0 to 255.
"""

from __future__ import annotations

from typing import Any, Final

import torch
from torch.fx import Node

from trt_et.graph.operators import VIEWS

aten = torch.ops.aten

WRAPS: Final = frozenset(
    {
        *(aten.add.Tensor, aten.add.Scalar, aten.sub.Tensor, aten.sub.Scalar),
        *(aten.rsub.Tensor, aten.rsub.Scalar, aten.mul.Tensor, aten.mul.Scalar),
        aten.neg.default,
    }
)
"""Their results may leave 0 to 255; torch then takes them modulo 256."""

_COMPARISONS: Final = frozenset(
    getattr(packet, name)
    for packet in (aten.eq, aten.ne, aten.lt, aten.le, aten.gt, aten.ge)
    for name in ("Tensor", "Scalar")
)
_MOVES: Final = VIEWS | {
    *(aten.cat.default, aten.stack.default, aten.flip.default, aten.repeat.default),
    *(aten._to_copy.default, aten.copy.default, aten.full.default, aten.full_like.default),
    *(aten.slice_scatter.default, aten.select_scatter.default, aten.roll.default),
    aten.scalar_tensor.default,
    *(aten.constant_pad_nd.default, aten.pad.default),
    *(aten.reflection_pad2d.default, aten.replication_pad2d.default),
    *(aten.pixel_shuffle.default, aten.pixel_unshuffle.default),
    *(aten.upsample_nearest2d.default, aten.upsample_nearest2d.vec),
    *(aten.gather.default, aten.index_select.default, aten.index.Tensor, aten.where.self),
}
_CHOICES: Final = frozenset(
    {
        *(aten.clamp.default, aten.maximum.default, aten.minimum.default),
        *(aten.amax.default, aten.amin.default, aten.argmax.default, aten.argmin.default),
        *(aten.max.dim, aten.min.dim, aten.max.default, aten.min.default),
        *(aten.max_pool2d.default, aten.max_pool2d_with_indices.default),
        aten.logical_not.default,
    }
)
_SUMS: Final = frozenset(
    {*(aten.sum.default, aten.sum.dim_IntList, aten.mean.default, aten.mean.dim)}
)
_QUOTIENTS: Final = frozenset({aten.div.Tensor, aten.div.Scalar})
_OPERATORS: Final = _MOVES | _CHOICES | _SUMS | _QUOTIENTS
_WITH_NUMBERS: Final = (
    WRAPS
    | _COMPARISONS
    | {aten.clamp.default, aten.constant_pad_nd.default, aten.pad.default}
    | {aten.full.default, aten.full_like.default, aten.scalar_tensor.default}
)
# They cast their second tensor to the dtype of the first.
_WRITES: Final = frozenset(
    {aten.copy.default, aten.slice_scatter.default, aten.select_scatter.default}
)


def is_uint8(value: object) -> bool:
    """Return whether a value, or a result of a call with several, is a uint8 tensor."""
    if isinstance(value, tuple | list):
        return any(map(is_uint8, value))
    return isinstance(value, torch.Tensor) and value.dtype == torch.uint8


def takes_uint8(node: Node) -> bool:
    """Return whether an engine runs a call of plain ATen if its tensors are uint8."""
    second: Any = node.args[1] if len(node.args) > 1 else None
    if node.target in _WRITES:
        return _is_uint8(second)
    if node.target is aten.index.Tensor:
        return not any(map(_is_uint8, second))  # They would be masks.
    if node.target in _WITH_NUMBERS:
        return not _has_other_numbers(node)
    return node.target in _OPERATORS


def _is_uint8(argument: Any) -> bool:  # noqa: ANN401
    return isinstance(argument, Node) and is_uint8(argument.meta.get("val"))


def _has_other_numbers(node: Node) -> bool:
    """Return whether a call takes numbers that uint8 lacks, which torch wraps or refuses.

    Numbers with a fraction are right where they turn the result into a float or a bool.
    """
    given = (*node.args, *node.kwargs.values())
    kinds = (int, float) if is_uint8(node.meta.get("val")) else (int,)
    return not all(n in range(256) for n in given if type(n) in kinds)
