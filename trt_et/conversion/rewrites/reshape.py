"""Reshapes that state every static size.

Seen with TensorRT-RTX 1.5 and Torch-TensorRT 2.13.
"""

from __future__ import annotations

from typing import Final

import torch
from torch.fx import GraphModule

__all__ = ["make_reshape_static"]

aten = torch.ops.aten

_RESHAPES: Final = (aten.reshape.default, aten.view.default, aten._unsafe_view.default)


def make_reshape_static(module: GraphModule) -> None:
    """Write known sizes into reshapes, and ``-1`` for a single dynamic one.

    ``x.view(1, length, -1, 8)`` with a dynamic length computes two sizes at run time, one of which
    is always the same. TensorRT then knows neither, and refuses the layers that follow (attention:
    "query number of heads must be divisible by key/value number of heads"). Export recorded the
    sizes that are known.

    Args:
        module: Plain ATen, with ``val`` metadata; changed in place.
    """
    for node in module.graph.nodes:
        value = node.meta.get("val")
        if node.target not in _RESHAPES or not isinstance(value, torch.Tensor):
            continue
        sizes: tuple[int | torch.SymInt, ...] = tuple(value.shape)
        dynamic = [index for index, size in enumerate(sizes) if not isinstance(size, int)]
        if len(dynamic) == 1:
            stated = [size if isinstance(size, int) else -1 for size in sizes]
        else:
            requested = node.args[1]
            stated = [
                size if isinstance(size, int) else given
                for size, given in zip(sizes, requested, strict=True)
            ]
        # Torch-TensorRT drops clones and then folds operators on constants. A permuted constant may
        # lack a view that its clone has.
        node.target = aten.reshape.default
        node.args = (node.args[0], stated)
    module.graph.eliminate_dead_code()
    module.recompile()
