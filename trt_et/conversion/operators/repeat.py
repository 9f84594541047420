"""``repeat``, dimension by dimension."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import torch
from torch import Tensor

from trt_et.conversion.operator import Operator

aten = torch.ops.aten


def repeat(x: Tensor, repeats: Sequence[Any]) -> Tensor:
    """Expand dimensions of size 1; expand and reshape the others one by one.

    The decomposition of Torch-TensorRT 2.13 has twice as many dimensions, where TensorRT takes 8.
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
