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


def _convolved(
    function: Any,
    planes: list[int],
    layer: Any,
    x: Tensor,
    kernel: Tensor | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    """Apply a convolution of torch; ``planes`` are the kernel's first two sizes."""
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


@layer_type("POOLING")
def pooling(layer: Any, x: Tensor) -> Tensor:
    # Not the layer's type: the class's own attribute of that name is the kind of pooling.
    kind, mode = layer.type.name, layer.padding_mode.name
    window, stride = list(layer.window_size_nd), list(layer.stride_nd)
    before, after = list(layer.pre_padding), list(layer.post_padding)
    if mode not in ("EXPLICIT_ROUND_DOWN", "EXPLICIT_ROUND_UP") or kind not in ("MAX", "AVERAGE"):
        raise NotEvaluated(f"POOLING {kind} {mode}")
    spatial = len(window)
    need(spatial < x.dim(), f"a window {window} over {tuple(x.shape)}")
    lead = x.dim() - spatial
    sizes = x.shape[lead:]
    rounded = math.floor if mode.endswith("DOWN") else math.ceil
    out = [
        rounded((sizes[i] + before[i] + after[i] - window[i]) / stride[i]) + 1
        for i in range(spatial)
    ]
    # Beyond the padding there is nothing: no element, and none that counts.
    extra = [
        max((out[i] - 1) * stride[i] + window[i] - sizes[i] - before[i] - after[i], 0)
        for i in range(spatial)
    ]

    def windows(t: Tensor) -> Tensor:
        for i in range(spatial):
            t = t.unfold(lead + i, window[i], stride[i])
        return t.flatten(lead + spatial)

    beyond = _pairs([0] * spatial, extra)
    inner = _pairs(before, after)
    if kind == "MAX":
        lowest = -math.inf if x.is_floating_point() else torch.iinfo(x.dtype).min
        return windows(F.pad(F.pad(x, inner, value=lowest), beyond, value=lowest)).amax(-1)
    counted = torch.ones_like(x)
    counted = F.pad(counted, inner, value=0.0 if layer.average_count_excludes_padding else 1.0)
    total = windows(F.pad(F.pad(x, inner), beyond)).sum(-1)
    return total / windows(F.pad(counted, beyond)).sum(-1)


def _origin(layer: Any, length: int, resized: int) -> Tensor:
    positions = torch.arange(resized, dtype=torch.float64)
    if resized == 1 and layer.selector_for_single_pixel == trt.ResizeSelector.UPPER:
        return torch.zeros(1, dtype=torch.float64)
    kind = layer.coordinate_transformation.name
    if kind == "ALIGN_CORNERS":
        return positions * (length - 1) / (resized - 1) if resized > 1 else positions * 0
    if kind == "ASYMMETRIC":
        return positions * (length / resized)
    return (positions + 0.5) * (length / resized) - 0.5


def _matrix(layer: Any, length: int, resized: int) -> Tensor:
    """The share of every element of a line in every element of the resized line."""
    origin = _origin(layer, length, resized)
    matrix = torch.zeros(resized, length, dtype=torch.float64)
    rows = torch.arange(resized)
    mode = layer.resize_mode.name
    if mode == "NEAREST":
        rounding = {
            "HALF_UP": lambda t: (t + 0.5).floor(),
            "HALF_DOWN": lambda t: (t - 0.5).ceil(),
            "FLOOR": torch.floor,
            "CEIL": torch.ceil,
        }[layer.nearest_rounding.name]
        taps = [(rounding(origin), torch.ones_like(origin))]
    else:
        low = origin.floor()
        t = origin - low
        if mode == "LINEAR":
            taps = [(low, 1 - t), (low + 1, t)]
        else:
            a = layer.cubic_coeff
            taps = []
            for k in range(-1, 3):
                d = (t - k).abs()
                near = (a + 2) * d**3 - (a + 3) * d**2 + 1
                far = a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a
                taps.append((low + k, torch.where(d <= 1, near, far)))
        if layer.exclude_outside:
            taps = [(p, w * ((p >= 0) & (p < length))) for p, w in taps]
            total = sum(w for _, w in taps)
            taps = [(p, w / total) for p, w in taps]
    for positions, shares in taps:
        matrix.index_put_((rows, positions.long().clamp(0, length - 1)), shares, accumulate=True)
    return matrix


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
    out = x.double()
    for axis, (length, resized) in enumerate(zip(x.shape, sizes, strict=True)):
        if length != resized:
            out = torch.movedim(out, axis, -1) @ _matrix(layer, length, resized).t()
            out = torch.movedim(out, -1, axis)
    return out.to(x.dtype)


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
