"""Resizing to sizes that are computed, as TensorRT's resize layer.

Import it only after Torch-TensorRT (see ``registry.py``). The converters of Torch-TensorRT 2.13
take dynamic batches, but only constant sizes.
"""

from __future__ import annotations

from typing import Any, Final

import tensorrt as trt
import torch
from torch.fx import Node
from torch_tensorrt.dynamo.conversion.converter_utils import cast_trt_tensor, get_trt_tensor

__all__ = ["add_resize", "has_computed_sizes"]

aten = torch.ops.aten

_NEAREST: Final = (
    aten.upsample_nearest1d.vec,
    aten.upsample_nearest2d.vec,
    aten.upsample_nearest3d.vec,
)
_MODES: Final[dict[Any, trt.InterpolationMode]] = {
    **dict.fromkeys(_NEAREST, trt.InterpolationMode.NEAREST),
    aten.upsample_linear1d.vec: trt.InterpolationMode.LINEAR,
    aten.upsample_bilinear2d.vec: trt.InterpolationMode.LINEAR,
    aten.upsample_trilinear3d.vec: trt.InterpolationMode.LINEAR,
    aten.upsample_bicubic2d.vec: trt.InterpolationMode.CUBIC,
}


def has_computed_sizes(args: Any) -> bool:  # noqa: ANN401
    """Check whether the arguments of an ``aten.upsample_...`` have TensorRT's tensors as sizes."""
    return args[1] is not None and any(isinstance(size, trt.ITensor) for size in args[1])


def add_resize(ctx: Any, node: Node, args: Any, kwargs: Any) -> Any:  # noqa: ANN401
    """Add the layer of one ``aten.upsample_...``.

    Args:
        ctx: Torch-TensorRT's ``ConversionContext``.
        node: The call.
        args: The tensor, ``[batch, channels, ...]``; the new sizes of its other dimensions, as
            numbers or TensorRT's tensors; except for the nearest neighbor, whether corners are
            aligned.
        kwargs: Empty.

    Returns:
        TensorRT's tensor.
    """
    source = get_trt_tensor(ctx, args[0], f"{node.name}_input")
    shape = cast_trt_tensor(
        ctx, ctx.net.add_shape(source).get_output(0), torch.int32, f"{node.name}_shape"
    )
    leading = ctx.net.add_slice(shape, (0,), (2,), (1,))
    leading.name = f"leading_{node.name}"
    sizes = [leading.get_output(0)]
    for index, size in enumerate(args[1]):
        name = f"{node.name}_size{index}"
        constant = torch.tensor([size], dtype=torch.int32) if isinstance(size, int) else size
        number = cast_trt_tensor(
            ctx, get_trt_tensor(ctx, constant, name), torch.int32, f"{name}_cast"
        )
        line = ctx.net.add_shuffle(number)
        line.reshape_dims = (1,)
        line.name = f"line_{name}"
        sizes.append(line.get_output(0))
    wanted = ctx.net.add_concatenation(sizes)
    wanted.axis = 0
    wanted.name = f"sizes_{node.name}"
    layer = ctx.net.add_resize(source)
    layer.set_input(1, wanted.get_output(0))
    layer.resize_mode = _MODES[node.target]
    transformations = trt.ResizeCoordinateTransformation
    if node.target in _NEAREST:
        layer.coordinate_transformation = transformations.ASYMMETRIC
    elif args[2]:
        layer.coordinate_transformation = transformations.ALIGN_CORNERS
    else:
        layer.coordinate_transformation = transformations.HALF_PIXEL
    layer.name = f"resize_{node.name}"
    return layer.get_output(0)
