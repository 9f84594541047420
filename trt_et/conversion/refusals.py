"""Refuses calls that convert without an error, but to a wrong or unbuildable network.

Each function takes one call of a plain ATen graph and returns why it is refused, or None. The
registry (``registry.py``) lists the operators of each function.
"""

from __future__ import annotations

from typing import Any, Final

import torch
from torch.fx import Node

__all__ = [
    "NEAREST_RESIZES",
    "dynamic_index_put",
    "dynamic_resize_factor",
    "scatter_into_number",
    "softplus_threshold",
]

aten = torch.ops.aten

# Above this, softplus is its argument as far as float32 can tell.
_SOFTPLUS_THRESHOLD: Final = 15

NEAREST_RESIZES: Final = (
    aten.upsample_nearest1d.vec,
    aten.upsample_nearest2d.vec,
    aten.upsample_nearest3d.vec,
)
"""Resizes that take the nearest element; they have no option to align corners."""


def scatter_into_number(node: Node) -> str | None:
    """Refuse a tensor without dimensions: TensorRT takes the layer, but builds no engine of it."""
    args: Any = node.args
    if args[0].meta["val"].dim() == 0:
        return "TensorRT builds no engine that scatters into a tensor without dimensions"
    return None


def softplus_threshold(node: Node) -> str | None:
    """Refuse a threshold low enough to change the result; TensorRT's layer has no threshold."""
    args: Any = node.args
    if len(args) > 2 and args[2] < _SOFTPLUS_THRESHOLD:
        return "TensorRT's softplus has no threshold"
    return None


def dynamic_index_put(node: Node) -> str | None:
    """Refuse several indices after a dimension without one, unless all sizes are static."""
    args: Any = node.args
    given = [index for index in args[1] if index is not None]
    if not _is_static(node) and args[1][0] is None and len(given) > 1:
        return "its indices follow a dimension that is not indexed, and sizes are dynamic"
    return None


def dynamic_resize_factor(node: Node) -> str | None:
    """Refuse dynamic sizes times a fraction: torch steps by the factor, TensorRT by the sizes."""
    args: Any = node.args
    if args[1] is not None or _is_static(node):
        return None
    corners = node.target not in NEAREST_RESIZES and args[2]
    if not corners and any(not float(factor).is_integer() for factor in args[-1]):
        return "it resizes dynamic sizes by a factor that is not an integer"
    return None


def _is_static(node: Node) -> bool:
    values = (n.meta.get("val") for n in (node, *node.all_input_nodes))
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    return all(isinstance(size, int) for tensor in tensors for size in tensor.shape)
