"""Views that become reshapes.

Torch-TensorRT 2.13 computes what depends on constants alone, behind a pass that drops clones: a
view of the clone of a permuted constant is then a view of the permuted constant, which has none
("view size is not compatible with input tensor's size and stride").
"""

from __future__ import annotations

from typing import Final

import torch
from torch.fx import GraphModule

__all__ = ["replace_view_with_reshape"]

aten = torch.ops.aten

_VIEWS: Final = (aten.view.default, aten._unsafe_view.default)


def replace_view_with_reshape(module: GraphModule) -> None:
    """Put ``reshape`` where a graph has ``view``: the same values, of any strides.

    Args:
        module: Plain ATen; changed in place.
    """
    for node in module.graph.nodes:
        if node.target in _VIEWS:
            node.target = aten.reshape.default
    module.recompile()
