"""Reshapes, repeats and diagonals; ranges and fills by numbers that are computed from sizes."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, Final, cast

import torch
from torch import Tensor
from torch.fx import Node

from trt_et.conversion.operator import Operator
from trt_et.graph.insertion import insert_call
from trt_et.graph.operators import PERMUTES, RESHAPES
from trt_et.graph.symbolic_shapes import same_sizes

aten = torch.ops.aten


def make_static(node: Node) -> None:
    """Write known sizes into a reshape, and ``-1`` for a single dynamic one.

    ``x.view(1, length, -1, 8)`` with a dynamic length computes two sizes at run time, one of which
    is always the same. TensorRT-RTX 1.5 then knows neither, and refuses the layers that follow
    (attention: "query number of heads must be divisible by key/value number of heads"). Export
    recorded the sizes that are known.
    """
    sizes: tuple[Any, ...] = tuple(node.meta["val"].shape)
    requested: Any = node.args[1]
    if sum(not isinstance(size, int) for size in sizes) == 1:
        requested = [-1] * len(sizes)
    stated = [
        size if isinstance(size, int) else given
        for size, given in zip(sizes, requested, strict=True)
    ]
    # Torch-TensorRT 2.13 drops clones and then folds operators on constants. A permuted constant
    # may lack a view that its clone has.
    node.target = aten.reshape.default
    node.args = (node.args[0], stated)


RESHAPE: Final = Operator(
    "reshape",
    RESHAPES,
    rewrite=make_static,
)


def permute_sizes_of_one(node: Node) -> Node | None:
    """Reshape, if a permutation only moves sizes of 1.

    TensorRT-RTX 1.6's builder crashes on such a permutation of a product before its bias is added,
    as in ``einsum("btc,cd->btd", x, weight) + bias`` with a batch of 1.
    """
    source: Any = node.args[0]
    sizes = source.meta["val"].shape
    numbered: Any = torch.empty_strided([1] * len(sizes), list(range(len(sizes))), device="meta")
    target: Any = node.target
    order = [
        dim
        for dim in target(numbered, *node.args[1:]).stride()
        if not same_sizes([sizes[dim]], [1])
    ]
    result = [size if isinstance(size, int) else -1 for size in node.meta["val"].shape]
    if order != sorted(order) or result.count(-1) > 1:
        return None
    return insert_call(node, aten.reshape.default, source, result)


PERMUTE: Final = Operator(
    "permute", PERMUTES, rewrite=permute_sizes_of_one, upstream="rtx_permute_crash"
)


def repeat(x: Tensor, repeats: Sequence[Any]) -> Tensor:
    """Expand dimensions of size 1; expand and reshape the others one by one.

    The decomposition of Torch-TensorRT 2.13 has twice as many dimensions; TensorRT takes at most 8.
    The converter of 2.14 takes no size as a number of repeats of a static tensor.
    """
    sizes: list[Any] = [1] * (len(repeats) - x.dim()) + list(x.shape)
    x = x.reshape(sizes)
    is_one = [isinstance(size, int) and size == 1 for size in sizes]
    sizes = [
        times if one else size for size, times, one in zip(sizes, repeats, is_one, strict=True)
    ]
    x = x.expand(sizes).clone()
    for dim, times in enumerate(repeats):
        if not is_one[dim] and not (isinstance(times, int) and times == 1):
            copies = [*sizes[:dim], times, *sizes[dim:]]
            sizes[dim] = sizes[dim] * times
            x = x.unsqueeze(dim).expand(copies).reshape(sizes)
    return x


REPEAT: Final = Operator("repeat", (aten.repeat.default,), decompose=repeat)


# Torch-TensorRT 2.13 takes diagonals of static sizes only, and torch's ONNX exporter makes an
# EyeLike of a dynamic size, which TensorRT's parser refuses.


def diagonal(x: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """Pick the diagonals from the flattened matrices, which may be batched in any dimensions."""
    matrices = x.movedim((dim1, dim2), (-2, -1))
    *others, rows, columns = matrices.shape
    step = columns + 1
    if isinstance(rows, int) and isinstance(columns, int):
        first = offset if offset >= 0 else -offset * columns
        length = max(min(rows + min(offset, 0), columns - max(offset, 0)), 0)
        flat = matrices.reshape(*others, rows * columns)
        return flat[..., first : first + (length - 1) * step + 1 : step]
    first = max(-offset, 0) * columns + max(offset, 0)
    length = torch.sym_min(rows - max(-offset, 0), columns - max(offset, 0))
    places = torch.arange(length, device=x.device) * step + first
    return matrices.reshape(*others, rows * columns)[..., places]


DIAGONAL: Final = Operator("diagonal", (aten.diagonal.default,), decompose=diagonal)


def unfold(x: Tensor, dim: int, size: int, step: int) -> Tensor:
    """Gather the windows, unless they lie side by side; Torch-TensorRT has static strides only."""
    dim %= x.dim()
    if size == step and same_sizes([x.shape[dim] % size], [0]):
        windows = torch.unflatten(x, dim, (-1, size))
    else:
        number = (x.shape[dim] - size) // step + 1
        starts = torch.arange(number, device=x.device) * step
        places = starts.unsqueeze(-1) + torch.arange(size, device=x.device)
        windows = aten.index.Tensor(x, [*[None] * dim, places])
    return windows.movedim(dim + 1, -1)


def pad(x: Tensor, amounts: Any, mode: str = "constant", value: float | None = None) -> Any:  # noqa: ANN401
    """Pad by a number with the operator that Torch-TensorRT 2.14 makes part of a convolution."""
    if mode != "constant":
        return NotImplemented
    return aten.constant_pad_nd(x, amounts, 0 if value is None else value)


def pad_by_sizes(node: Node) -> Node | None:
    """Pad by computed amounts with the operator that stays apart from a convolution.

    Torch-TensorRT 2.14 makes ``constant_pad_nd`` part of it, and fails if an amount is no number.
    """
    x, amounts, *value = node.args
    if not any(isinstance(amount, Node) for amount in cast(Sequence[Any], amounts)):
        return None
    return insert_call(node, aten.pad.default, x, amounts, "constant", *value)


PAD: Final = Operator("pad", (aten.pad.default,), decompose=pad)
PAD_BY_SIZES: Final = Operator(
    "pad by sizes", (aten.constant_pad_nd.default,), rewrite=pad_by_sizes
)
UNFOLD: Final = Operator("unfold", (aten.unfold.default,), decompose=unfold)


def count(node: Node) -> Node | None:
    """Count from 0 in steps of 1, then multiply and add.

    Torch-TensorRT 2.13 rounds the length of a range down, so ``arange(0, 5, 2)`` gets two numbers,
    and takes no computed start. 2.14 adds a start that is a size as int32, but the step as int64.
    """
    arguments: Any = node.args
    start, end, step = (*arguments, 1)[:3]
    if not any(isinstance(number, Node) for number in (start, end)) or (start, step) == (0, 1):
        return None
    if type(step) is not int or not all(_is_integer(number) for number in (start, end)):
        return None
    low, high, size = (start, end, step) if step > 0 else (end, start, -step)
    length = insert_call(node, operator.sub, high, low)
    if size > 1:
        length = insert_call(node, operator.add, length, size - 1)
        length = insert_call(node, operator.floordiv, length, size)
    numbers = insert_call(node, aten.arange.start_step, 0, length, 1, **node.kwargs)
    if step != 1:
        numbers = insert_call(node, aten.mul.Tensor, numbers, step)
    if start != 0:
        numbers = insert_call(node, aten.add.Tensor, numbers, start)
    return numbers


def fill(node: Node) -> Node | None:
    """Fill with 1 and multiply; Torch-TensorRT 2.13 and 2.14 take no size to fill with."""
    sizes, number = node.args
    if not isinstance(number, Node) or node.meta["val"].dtype == torch.bool:
        return None
    one = 1 if _is_integer(number) else 1.0
    ones = insert_call(node, aten.full.default, sizes, one, **node.kwargs)
    return insert_call(node, aten.mul.Tensor, ones, number)


def _is_integer(number: Any) -> bool:  # noqa: ANN401
    value = number.meta["val"] if isinstance(number, Node) else number
    return isinstance(value, int | torch.SymInt) and not isinstance(value, bool)


ARANGE: Final = Operator(
    "arange",
    (aten.arange.start_step,),
    rewrite=count,
    upstream="arange",
)
FULL: Final = Operator("full", (aten.full.default,), rewrite=fill)
