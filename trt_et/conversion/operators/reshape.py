"""Reshapes that state every static size."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch.fx import Node

from trt_et.conversion.operator import Operator
from trt_et.graph.operators import RESHAPES

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
