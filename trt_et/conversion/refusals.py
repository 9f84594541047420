"""Calls that a converter accepts, but converts wrongly or to a network that TensorRT cannot build.

Each function takes one call of a plain ATen graph and returns why it is refused, or None. The
registry (``registry.py``) says which operators a function is asked about.
"""

from __future__ import annotations

from typing import Any, Final

import torch
from torch.fx import Node

__all__ = [
    "NEAREST_RESIZES",
    "argument_without_dimensions",
    "boolean_order",
    "dynamic_adaptive_average",
    "dynamic_index_put",
    "dynamic_pool_channels",
    "dynamic_resize_factor",
    "integer_layer",
    "output_padding",
    "softplus_threshold",
    "unequal_copy",
    "volume_sampling",
]

aten = torch.ops.aten

# Above this, softplus is its argument as far as float32 can tell.
_SOFTPLUS_THRESHOLD: Final = 15
_IMAGE_RANK: Final = 4

NEAREST_RESIZES: Final = (
    aten.upsample_nearest1d.vec,
    aten.upsample_nearest2d.vec,
    aten.upsample_nearest3d.vec,
)
"""Resizes that take the nearest element; they have no option to align corners."""


def integer_layer(node: Node) -> str | None:
    """Integers: TensorRT multiplies, convolves and averages floats only."""
    if node.meta["val"].is_floating_point():
        return None
    return "TensorRT has no such layer for integers"


def output_padding(node: Node) -> str | None:
    """A transposed convolution whose output is padded by more than its padding."""
    args: Any = node.args
    if not args[6]:
        return None
    paddings = zip(args[4], args[7], strict=False)
    if any(isinstance(p, int) and isinstance(o, int) and o > p for p, o in paddings):
        return "TensorRT pads no output of a transposed convolution beyond its padding"
    return None


def boolean_order(node: Node) -> str | None:
    """Booleans: TensorRT does not order them."""
    values = (tensor.meta.get("val") for tensor in node.all_input_nodes)
    if any(isinstance(v, torch.Tensor) and v.dtype == torch.bool for v in values):
        return "TensorRT orders no booleans"
    return None


def argument_without_dimensions(node: Node) -> str | None:
    """A tensor without dimensions, where the converter expects one."""
    args: Any = node.args
    if args[0].meta["val"].dim() == 0:
        return "Torch-TensorRT does not convert it for a tensor without dimensions"
    return None


def volume_sampling(node: Node) -> str | None:
    """Volumes: TensorRT samples images only; TensorRT-RTX 1.6 volumes too."""
    args: Any = node.args
    return None if args[0].meta["val"].dim() == _IMAGE_RANK else "TensorRT samples images only"


def unequal_copy(node: Node) -> str | None:
    """A copy that broadcasts."""
    args: Any = node.args
    if len({str(argument.meta["val"].shape) for argument in args[:2]}) > 1:
        return "Torch-TensorRT does not expand what is copied"
    return None


def softplus_threshold(node: Node) -> str | None:
    """A threshold low enough to change the result; the layer has none."""
    args: Any = node.args
    if len(args) > 2 and args[2] < _SOFTPLUS_THRESHOLD:
        return "TensorRT's softplus has no threshold"
    return None


def dynamic_index_put(node: Node) -> str | None:
    """Several indices after a dimension without one; rewritten only where all sizes are known."""
    args: Any = node.args
    given = [index for index in args[1] if index is not None]
    if not _is_static(node) and args[1][0] is None and len(given) > 1:
        return "its indices follow a dimension that is not indexed, and sizes are dynamic"
    return None


def dynamic_pool_channels(node: Node) -> str | None:
    """A dynamic number of channels."""
    args: Any = node.args
    shape = args[0].meta["val"].shape
    if isinstance(shape[1], torch.SymInt) and len(shape) == len(args[1]) + 2:
        return "it pools a dynamic number of channels"
    return None


def dynamic_adaptive_average(node: Node) -> str | None:
    """Dynamic sizes that are averaged to more than one element."""
    args: Any = node.args
    if all(size == 1 for size in args[1]):
        return None
    # The converter of the one-dimensional average needs to know the number of channels too.
    sizes = args[0].meta["val"].shape[-max(len(args[1]), 2) :]
    if any(isinstance(size, torch.SymInt) for size in sizes):
        return "it averages dynamic sizes to a fixed size"
    return None


def dynamic_resize_factor(node: Node) -> str | None:
    """Dynamic sizes times a fraction: torch takes the step from the factor, TensorRT from sizes."""
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
