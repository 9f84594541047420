"""Sums, products and extrema of the elements of each set: scatters that add, bags of embeddings.

TensorRT's scatter layers write, and the last write to an index wins. Torch-TensorRT 2.13 adds two
layers for each element along the dimension: 1,024 edges of a graph are an engine of 266 MB. Of a
bag it makes a loop over the bags around a loop over the indices, ignores which index is padding,
returns float32 for weights of every dtype, and names layers after the time of day.

These decompositions use a boolean matrix (``[targets, elements]``) of the elements of each target.
They multiply entire rows by it; they select other elements by it and reduce them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import torch
from torch import Tensor
from torch.fx import Node
from torch.fx.experimental.symbolic_shapes import statically_known_true

from trt_et.conversion.operator import Operator
from trt_et.graph.arguments import named_arguments
from trt_et.graph.insertion import insert_call
from trt_et.graph.operators import INTEGERS
from trt_et.graph.symbolic_shapes import shape_range

aten = torch.ops.aten

# Elements of the matrix, or of the tensor that it selects from. 64 MiB in float32.
_LARGEST: Final = 1 << 24

_REDUCTIONS: Final[dict[str, tuple[Callable[..., Tensor], Callable[..., Tensor], float]]] = {
    "sum": (torch.add, lambda x: x.sum(-1), 0),
    "mean": (torch.add, lambda x: x.sum(-1), 0),
    "prod": (torch.mul, lambda x: x.prod(-1), 1),
    "amax": (torch.maximum, lambda x: x.amax(-1), -math.inf),
    "amin": (torch.minimum, lambda x: x.amin(-1), math.inf),
}


def scatter_reduce(
    x: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True
) -> Any:  # noqa: ANN401
    """Decompose ``aten.scatter_reduce.two``, unless it computes means of integers.

    The result is ``NotImplemented`` for these, for a tensor without dimensions, and if the index is
    smaller along dynamic dimensions.
    """
    is_integer = not x.dtype.is_floating_point
    if reduce not in _REDUCTIONS or x.dim() == 0 or (is_integer and reduce == "mean"):
        return NotImplemented
    merge, collapse, neutral = _REDUCTIONS[reduce]
    if is_integer:
        limits = torch.iinfo(x.dtype)
        neutral = int(min(max(neutral, limits.min), limits.max))
    for axis, size in enumerate(index.shape):
        if not statically_known_true(size == src.shape[axis]):
            if not isinstance(size, int):
                return NotImplemented
            src = src.narrow(axis, 0, size)
    src = src.movedim(dim, -1)
    target, index = x.movedim(dim, -1), index.movedim(dim, -1)
    targets = torch.arange(target.shape[-1], dtype=index.dtype, device=x.device)
    member = targets.unsqueeze(-1) == index.unsqueeze(-2)
    scattered = collapse(torch.where(member, src.unsqueeze(-2), neutral)).to(x.dtype)
    count = member.sum(-1)
    # The index may be smaller than the target.
    short = [target.shape[d] - scattered.shape[d] for d in reversed(range(target.dim()))]
    if not all(statically_known_true(amount == 0) for amount in short):
        if not all(isinstance(amount, int) for amount in short):
            return NotImplemented
        pads = [size for amount in short for size in (0, amount)]
        scattered = torch.nn.functional.pad(scattered, pads, value=neutral)
        count = torch.nn.functional.pad(count, pads)
    merged = merge(target, scattered) if include_self else scattered
    if reduce == "mean":
        merged = merged / (count + int(include_self)).clamp(min=1).to(x.dtype)
    return torch.where(count > 0, merged, target).movedim(-1, dim)


def _scatter_add(x: Tensor, dim: int, index: Tensor, src: Tensor) -> Any:  # noqa: ANN401
    return scatter_reduce(x, dim, index, src, "sum")


def _index_add(x: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: float = 1) -> Tensor:
    """Add entire rows by a product with the matrix. Negative indices count from the end."""
    target = x.movedim(dim, 0)
    rows = source.movedim(dim, 0).reshape(source.shape[dim], -1)
    number = target.shape[0]
    index = torch.where(index < 0, index + number, index)
    targets = torch.arange(number, dtype=index.dtype, device=x.device)
    member = targets.unsqueeze(-1) == index
    added = sum_members(member, rows)
    return (target + alpha * added.reshape(target.shape)).movedim(0, dim)


def sum_members(member: Tensor, rows: Tensor) -> Tensor:
    """Sum the rows of each set by one product; an infinity or a NaN reaches only its own sets.

    0 * inf is not a number, so a product with the rows themselves would spread an infinity to every
    set. This product takes the finite numbers and two masks: it counts, for each sum, how many of
    its numbers are inf, and how many are -inf. Both masks include NaN.

    Args:
        member: ``[sets, rows]``, which row is in which set.
        rows: ``[rows, width]``, of floats.

    Returns:
        ``[sets, width]``.
    """
    above = torch.logical_not(rows < math.inf)
    below = torch.logical_not(rows > -math.inf)
    finite = torch.where(torch.logical_or(above, below), 0.0, rows)
    columns = torch.cat([finite, above.to(rows.dtype), below.to(rows.dtype)], 1)
    width = rows.shape[1]
    sums = member.to(rows.dtype) @ columns
    result = sums[:, :width]
    result = torch.where(sums[:, width : 2 * width] > 0, result + math.inf, result)
    return torch.where(sums[:, 2 * width :] > 0, result - math.inf, result)


def unsupported_sum(node: Node) -> str | None:
    """Refuse several indices, a mask, integers, or more than 2**24 pairs of elements."""
    rows = _whole_rows(node)
    if rows is None and is_accumulating(node):
        return "it adds by several indices, by a mask, or integers"
    arguments: Any = rows or node.args
    x, dim, index = arguments[:3]
    shape, indices = x.meta["val"].shape, index.meta["val"].shape
    if not shape:
        return "Torch-TensorRT does not convert it for a tensor without dimensions"
    number = math.prod(shape_range(size)[2] for size in (*indices, shape[dim]))
    if number > _LARGEST:
        return f"the matrix that selects its elements would have {number} elements"
    return None


def is_accumulating(node: Node) -> bool:
    """Check whether a node is an ``index_put`` that accumulates."""
    is_put = node.target is aten.index_put.default
    return is_put and bool(named_arguments(node)["accumulate"])


def to_index_add(node: Node) -> Node | None:
    """Return an ``index_add`` for a scatter that adds entire rows; None for any other."""
    rows = _whole_rows(node)
    if rows is None:
        return None
    x, dim, index, source = rows
    line = insert_call(node, aten.reshape.default, index, [-1])
    return insert_call(node, aten.index_add.default, x, dim, line, source)


def _whole_rows(node: Node) -> tuple[Node, int, Node, Node] | None:
    """Return the target, the dimension, the indices along it, and the rows; None for others.

    All dimensions of the indices but one have one element.
    """
    arguments: Any = node.args
    index: Any
    if is_accumulating(node):
        x, indices, source = arguments[:3]
        given = [(dim, index) for dim, index in enumerate(indices) if index is not None]
        if len(given) != 1:
            return None
        dim, index = given[0]
        if index.meta["val"].dtype not in INTEGERS:
            return None
        count = index.meta["val"].shape
    elif node.target is aten.scatter_add.default:
        x, dim, broadcast, source = arguments
        if not isinstance(broadcast, Node) or broadcast.target is not aten.expand.default:
            return None
        # A smaller index takes a part of the source.
        if str(list(broadcast.meta["val"].shape)) != str(list(source.meta["val"].shape)):
            return None
        index = broadcast.args[0]
        shape = list(index.meta["val"].shape)
        count = shape[dim:][:1]
        if len(shape) != broadcast.meta["val"].dim() or [s for s in shape if s != 1] != count:
            return None
    else:
        return None
    if not isinstance(x, Node) or not isinstance(source, Node):
        return None
    value = x.meta["val"]
    wanted = list(value.shape)
    wanted[dim] = count[0] if len(count) == 1 else None
    if not value.is_floating_point() or str(wanted) != str(list(source.meta["val"].shape)):
        return None
    return x, dim, index, source


SCATTER_ADD: Final = Operator(
    "scatter_add",
    (aten.scatter_add.default,),
    unsupported=unsupported_sum,
    rewrite=to_index_add,
    decompose=_scatter_add,
)
SCATTER_REDUCE: Final = Operator(
    "scatter_reduce",
    (aten.scatter_reduce.two,),
    unsupported=unsupported_sum,
    decompose=scatter_reduce,
)
INDEX_ADD: Final = Operator(
    "index_add", (aten.index_add.default,), unsupported=unsupported_sum, decompose=_index_add
)


_MEAN: Final = 1
_MAXIMUM: Final = 2


def embedding_bag(
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = -1,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Decompose ``aten.embedding_bag`` by a boolean matrix ``[bags, indices]``.

    Args:
        weight: ``[embeddings, width]``.
        indices: ``[count]``, the indices of the first bag, then of the next, and so on.
        offsets: ``[bags]``, the position of each bag's first index.
        mode: 0 for sums, 1 for means, 2 for the largest; in float32.
        per_sample_weights: ``[count]``, factors.
        include_last_offset: Whether ``offsets`` also has the end of the last bag. Torch sums
            nothing beyond that end, but counts it for the mean.
        padding_idx: The index that counts for nothing.
        scale_grad_by_freq: Of gradients.
        sparse: Of gradients.

    Returns:
        ``[bags, width]``, and three that only gradients need: the bag of each index, and twice how
        many indices each bag has.
    """
    padding_idx = -1 if padding_idx is None else padding_idx
    starts = offsets[:-1] if include_last_offset else offsets
    position = torch.arange(indices.shape[0], dtype=starts.dtype)
    bag = (starts.unsqueeze(0) <= position.unsqueeze(1)).sum(1) - 1
    member = bag.unsqueeze(0) == torch.arange(starts.shape[0]).unsqueeze(1)
    if padding_idx >= 0:
        member = member & (indices != padding_idx)
    count = member.sum(1, keepdim=True)
    rows = aten.embedding(weight, indices).to(torch.float32)
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.to(torch.float32).unsqueeze(1)
    if mode == _MAXIMUM:
        others = torch.where(member.unsqueeze(2), rows.unsqueeze(0), float("-inf"))
        result = torch.where(count > 0, others.amax(1), 0.0)
    else:
        if include_last_offset and padding_idx < 0:
            member = member & (position < offsets[-1:])
        result = sum_members(member, rows)
        if mode == _MEAN:
            result = result / count.clamp(min=1)
    return result.to(weight.dtype), bag, count.squeeze(1), count.squeeze(1)


def reduce_equal_size_bags(node: Node) -> None:
    """Write bags of one static size as reductions; the decomposition multiplies by a matrix."""
    arguments = named_arguments(node)
    weight, indices = arguments["weight"], arguments["indices"]
    size = _size_of_bags(arguments["offsets"], indices)
    if size is None or arguments["include_last_offset"]:
        return
    if arguments["padding_idx"] not in (None, -1) or any(u.args[1] != 0 for u in node.users):
        return

    call = partial(insert_call, node)
    rows = call(aten.embedding.default, weight, indices)
    rows = call(aten._to_copy.default, rows, dtype=torch.float32)
    factors = arguments["per_sample_weights"]
    if factors is not None:
        exact = call(aten._to_copy.default, factors, dtype=torch.float32)
        rows = call(aten.mul.Tensor, rows, call(aten.unsqueeze.default, exact, 1))
    bags = call(aten.reshape.default, rows, [-1, size, rows.meta["val"].shape[1]])
    reductions = {_MEAN: aten.mean.dim, _MAXIMUM: aten.amax.default}
    result = call(reductions.get(arguments["mode"], aten.sum.dim_IntList), bags, [1])
    result = call(aten._to_copy.default, result, dtype=weight.meta["val"].dtype)
    for user in list(node.users):
        user.replace_all_uses_with(result)


def _size_of_bags(offsets: Any, indices: Any) -> int | None:  # noqa: ANN401
    if not isinstance(offsets, Node) or offsets.target is not aten.arange.start_step:
        return None
    start, _, size = (*offsets.args, 1)[:3]
    if start != 0 or not isinstance(size, int) or size < 1:
        return None
    (bags,), (count,) = offsets.meta["val"].shape, indices.meta["val"].shape
    return size if statically_known_true(bags * size == count) else None


EMBEDDING_BAG: Final = Operator(
    "embedding_bag",
    (
        aten.embedding_bag.padding_idx,
        aten._embedding_bag.default,
        aten._embedding_bag_forward_only.default,
    ),
    rewrite=reduce_equal_size_bags,
    decompose=embedding_bag,
)
