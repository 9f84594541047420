"""Bags of embeddings as lookups and sums.

Torch-TensorRT 2.13 adds a loop over the bags around a loop over the indices, ignores which index is
padding, returns float32 for weights of every dtype, and names layers after the time of day.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import torch
from torch import Tensor
from torch.fx import Node
from torch.fx.experimental.symbolic_shapes import statically_known_true

from trt_et.conversion.operator import Operator
from trt_et.conversion.operators.scatter_reduce import sum_members
from trt_et.graph.arguments import named_arguments
from trt_et.graph.insertion import insert_call

aten = torch.ops.aten

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
