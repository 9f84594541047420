"""Layers that look at neighbourhoods: convolutions, pooling, resizing, sampling."""

from __future__ import annotations

import math
from typing import Any

import tensorrt_rtx as trt
import torch
from torch import Tensor
from torch.nn import functional as F

from tests.support.network_evaluator.registry import NotEvaluated, layer_type, layer_weights, need


def _pairs(before: list[int], after: list[int]) -> list[int]:
    return [p for pair in zip(reversed(before), reversed(after), strict=True) for p in pair]


def _convolved(function: Any, planes: list[int], layer: Any, x: Tensor, *given: Tensor) -> Tensor:
    """Apply a convolution of torch; ``planes`` are the kernel's first two sizes."""
    kernel, bias = (*given, None, None)[:2]
    if kernel is None:
        kernel = layer_weights(layer, layer.kernel, "KERNEL")
        if kernel is None:
            raise NotEvaluated("a kernel whose values cannot be read")
        kernel = kernel.reshape([*planes, *layer.kernel_size_nd])
    if bias is None:
        bias = layer_weights(layer, layer.bias, "BIAS")
    bias = None if bias is None else bias.reshape(-1)
    options = {"stride": list(layer.stride_nd), "dilation": list(layer.dilation_nd)}
    return function(x, kernel, bias, **options, groups=layer.num_groups)


def _padding(layer: Any) -> list[int]:
    if layer.padding_mode != trt.PaddingMode.EXPLICIT_ROUND_DOWN:
        raise NotEvaluated(f"{layer.padding_mode.name}")
    return _pairs(list(layer.pre_padding), list(layer.post_padding))


@layer_type("CONVOLUTION")
def convolution(layer: Any, x: Tensor, *given: Tensor) -> Tensor:
    function = {2: F.conv2d, 3: F.conv3d}[x.dim() - 2]
    planes = [layer.num_output_maps, x.shape[1] // layer.num_groups]
    return _convolved(function, planes, layer, F.pad(x, _padding(layer)), *given)


@layer_type("DECONVOLUTION")
def deconvolution(layer: Any, x: Tensor, *given: Tensor) -> Tensor:
    function = {2: F.conv_transpose2d, 3: F.conv_transpose3d}[x.dim() - 2]
    planes = [x.shape[1], layer.num_output_maps // layer.num_groups]
    out = _convolved(function, planes, layer, x, *given)
    # O = (I - 1) * S + DK - (B + A): what padding cuts off; a negative one adds the bias alone.
    rest = [-p for p in _padding(layer)]
    if any(p > 0 for p in rest):
        raise NotEvaluated("DECONVOLUTION with a negative padding")
    return F.pad(out, rest)


_POOLS = {
    ("MAX", 2): F.max_pool2d,
    ("MAX", 3): F.max_pool3d,
    ("AVERAGE", 2): F.avg_pool2d,
    ("AVERAGE", 3): F.avg_pool3d,
}


@layer_type("POOLING")
def pooling(layer: Any, x: Tensor) -> Tensor:
    # Not the layer's type: the class's own attribute of that name is the kind of pooling.
    kind, mode = layer.type.name, layer.padding_mode.name
    window = list(layer.window_size_nd)
    if mode not in ("EXPLICIT_ROUND_DOWN", "EXPLICIT_ROUND_UP") or kind not in ("MAX", "AVERAGE"):
        raise NotEvaluated(f"POOLING {kind} {mode}")
    need(len(window) < x.dim(), f"a window {window} over {tuple(x.shape)}")
    need(kind == "MAX" or x.is_floating_point(), f"an average of {x.dtype}")
    padding = _pairs(list(layer.pre_padding), list(layer.post_padding))
    up = mode.endswith("UP")

    # Beyond the padding there is nothing: no element, and none that counts.
    def pooled(t: Tensor, value: float, **options: Any) -> Tensor:
        padded = F.pad(t.double(), padding, value=value)
        pool = _POOLS[kind, len(window)]
        return pool(padded, window, list(layer.stride_nd), ceil_mode=up, **options)

    if kind == "MAX":
        return pooled(x, -math.inf).to(x.dtype)
    weight = 0.0 if layer.average_count_excludes_padding else 1.0
    counted = pooled(torch.ones_like(x), weight, divisor_override=1)
    return (pooled(x, 0.0, divisor_override=1) / counted).to(x.dtype)


@layer_type("RESIZE")
def resize(layer: Any, x: Tensor, wanted: Tensor | None = None) -> Tensor:
    scales = list(layer.scales)
    if wanted is not None:
        sizes = wanted.tolist()
    elif scales:
        sizes = [math.floor(n * s) for n, s in zip(x.shape, scales, strict=True)]
    else:
        sizes = list(layer.shape)
    need(len(sizes) == x.dim(), f"RESIZE of {tuple(x.shape)} to {sizes}")
    need(sizes[:2] == list(x.shape[:2]), "a batch or channels that are resized")
    mode, origin = layer.resize_mode.name, layer.coordinate_transformation.name
    formula = layer.selector_for_single_pixel == trt.ResizeSelector.FORMULA
    need(formula and not layer.exclude_outside, "a rule for single pixels or borders")
    if mode == "NEAREST":
        rounding = layer.nearest_rounding.name
        need((origin, rounding) == ("ASYMMETRIC", "FLOOR"), f"RESIZE {mode} {origin} {rounding}")
        options: dict[str, Any] = {"mode": "nearest"}
    else:
        need(origin in ("ALIGN_CORNERS", "HALF_PIXEL"), f"RESIZE {mode} {origin}")
        need(mode == "LINEAR" or layer.cubic_coeff == -0.75, f"a cubic of {layer.cubic_coeff}")
        linear = ("linear", "bilinear", "trilinear")[x.dim() - 3]
        options = {"mode": linear if mode == "LINEAR" else "bicubic"}
        options["align_corners"] = origin == "ALIGN_CORNERS"
    # By size: TensorRT takes its step from the two lengths.
    return F.interpolate(x.double(), sizes[2:], **options).to(x.dtype)


@layer_type("GRID_SAMPLE")
def grid_sample(layer: Any, x: Tensor, grid: Tensor) -> Tensor:
    modes = {"NEAREST": "nearest", "LINEAR": "bilinear", "CUBIC": "bicubic"}
    outside = {"FILL": "zeros", "CLAMP": "border", "REFLECT": "reflection"}
    return F.grid_sample(
        x,
        grid,
        mode=modes[layer.interpolation_mode.name],
        padding_mode=outside[layer.sample_mode.name],
        align_corners=layer.align_corners,
    )
