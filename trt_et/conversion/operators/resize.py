"""Resizing by a factor, and to sizes that are computed."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import torch
from torch.fx import Node
from torch.nn import functional

from trt_et.conversion.layers import Layers
from trt_et.conversion.operator import Operator
from trt_et.conversion.operators.weighted_sums import weighted_sums
from trt_et.graph.symbolic_shapes import is_static

aten = torch.ops.aten

_NEAREST: Final = (
    aten.upsample_nearest1d.vec,
    aten.upsample_nearest2d.vec,
    aten.upsample_nearest3d.vec,
)
_LINEAR: Final = (
    aten.upsample_linear1d.vec,
    aten.upsample_bilinear2d.vec,
    aten.upsample_trilinear3d.vec,
)
_CUBIC: Final = (aten.upsample_bicubic2d.vec,)


def dynamic_factor(node: Node) -> str | None:
    """Refuse dynamic sizes times a fraction: torch steps by the factor, TensorRT by the sizes."""
    args: Any = node.args
    if args[1] is not None or _aligns_corners(node) or is_static(node, *node.all_input_nodes):
        return None
    if any(not float(factor).is_integer() for factor in args[-1]):
        return "it resizes dynamic sizes by a factor that is not an integer"
    return None


def _aligns_corners(node: Node) -> bool:
    return node.target not in _NEAREST and bool(node.args[2])


def resize_by_factor(node: Node) -> Node | None:
    """Resize by weighted sums, if TensorRT's layer would compute something else.

    By TensorRT's documentation it takes its step from the two lengths; torch takes it from the
    factor: 5 elements by 1.3 are 6, and 5 / 6 is not 1 / 1.3.
    """
    source: Any = node.args[0]
    factors: Any = node.args[-1] if isinstance(node.args[-1], list | tuple) else None
    if factors is None or node.args[1] is not None or _aligns_corners(node):
        return None  # By size: torch also takes the step from the lengths.
    sizes = list(source.meta["val"].shape[-len(factors) :])
    if not all(isinstance(size, int) for size in sizes):
        return None
    if not all(isinstance(by, float) for by in factors) or all(
        (size * by).is_integer() for size, by in zip(sizes, factors, strict=True)
    ):
        return None
    is_nearest = node.target in _NEAREST
    mode = "nearest" if is_nearest else "linear"
    lines = [
        partial(_cubic, by=by)
        if node.target in _CUBIC
        else partial(functional.interpolate, scale_factor=by, mode=mode)
        for by in factors
    ]
    return weighted_sums(node, sizes, lines, is_nearest=is_nearest)


def _cubic(lines: torch.Tensor, by: float) -> torch.Tensor:
    # In the middle of an image no two of a column's terms are the same row.
    image = functional.pad(lines.unsqueeze(2), [0, 0, 4, 4])
    return functional.interpolate(image, scale_factor=(1.0, by), mode="bicubic")[:, :, 4]


def add_resize(layers: Layers, args: Any, kwargs: Any) -> Any:  # noqa: ANN401
    """Add the layer of one ``aten.upsample_...`` to computed sizes.

    The converters of Torch-TensorRT 2.13 take dynamic batches, but only constant sizes.
    """
    trt, net, target = layers.trt, layers.net, layers.node.target
    if args[1] is None or not any(isinstance(size, trt.ITensor) for size in args[1]):
        return layers.convert(args, kwargs)
    source = layers.tensor(args[0], "input")
    shape = layers.cast(net.add_shape(source).get_output(0), torch.int32, "shape")
    sizes = [layers.result(net.add_slice(shape, (0,), (2,), (1,)), "leading")]
    for index, size in enumerate(args[1]):
        constant = torch.tensor([size], dtype=torch.int32) if isinstance(size, int) else size
        number = layers.tensor(constant, f"size{index}")
        line = net.add_shuffle(layers.cast(number, torch.int32, f"size{index}_cast"))
        line.reshape_dims = (1,)
        sizes.append(layers.result(line, f"size{index}_line"))
    wanted = net.add_concatenation(sizes)
    wanted.axis = 0
    layer = net.add_resize(source)
    layer.set_input(1, layers.result(wanted, "sizes"))
    modes, transformations = trt.InterpolationMode, trt.ResizeCoordinateTransformation
    if target in _NEAREST:
        layer.resize_mode = modes.NEAREST
        layer.coordinate_transformation = transformations.ASYMMETRIC
    else:
        layer.resize_mode = modes.CUBIC if target in _CUBIC else modes.LINEAR
        layer.coordinate_transformation = (
            transformations.ALIGN_CORNERS if args[2] else transformations.HALF_PIXEL
        )
    return layers.result(layer, "resize")


UPSAMPLE: Final = Operator(
    "upsample",
    (*_NEAREST, *_LINEAR, *_CUBIC),
    unsupported=dynamic_factor,
    rewrite=resize_by_factor,
    add_layer=add_resize,
)
