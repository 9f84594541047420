"""Pooling to a size, with windows over the edge, or with dilation.

TensorRT's layers have none of these. Torch-TensorRT 2.13 refuses ``ceil_mode`` (SqueezeNet,
GoogLeNet, SSD), ``dilation`` and ``divisor_override``. The rewrite pads the input.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any, Final

import torch
from torch._ops import OpOverload
from torch.fx import Node
from torch.nn import functional

from trt_et.conversion.operator import Operator
from trt_et.conversion.operators.weighted_sums import weighted_sums
from trt_et.graph.adaptive_windows import regular_windows
from trt_et.graph.arguments import named_arguments
from trt_et.graph.insertion import insert_call, insert_constant, insert_size
from trt_et.graph.operators import ACTIVATIONS, CONVOLUTION
from trt_et.graph.symbolic_shapes import is_static, same_sizes

aten = torch.ops.aten

# ``mul`` of a tensor and an activation of it: silu, hardswish, mish.
_ACTIVATIONS: Final = ACTIVATIONS - {aten.erf.default, aten._prelu_kernel.default} | {
    *(aten.clamp.default, aten.softplus.default, aten.mul.Tensor),
}


_POOLS: Final[dict[Any, OpOverload]] = {
    aten.adaptive_avg_pool2d.default: aten.avg_pool2d.default,
    aten._adaptive_avg_pool2d.default: aten.avg_pool2d.default,
    aten.adaptive_avg_pool3d.default: aten.avg_pool3d.default,
    aten._adaptive_avg_pool3d.default: aten.avg_pool3d.default,
}


def average(node: Node) -> Node | None:
    """Average by a pooling if all windows are of one size, else by weighted sums.

    Torch-TensorRT 2.13 uses windows of one size, which is right only if the new size divides the
    old one.
    """
    source: Any = node.args[0]
    wanted: Any = node.args[1]
    if not all(isinstance(want, int) for want in wanted):
        return None
    # TensorRT-RTX 1.6: as means, MobileNetV3 has 84 kernels in place of 74, SE-ResNet 63, not 64.
    if all(want == 1 for want in wanted) and not (is_static(source) and is_convolved(source)):
        dims = list(range(-len(wanted), 0))
        return insert_call(node, aten.mean.dim, source, dims, True)
    sizes = list(source.meta["val"].shape[-len(wanted) :])
    if not all(isinstance(size, int) for size in sizes) or all(
        size % want == 0 for size, want in zip(sizes, wanted, strict=True) if want
    ):
        return None
    windows = [*filter(None, map(regular_windows, sizes, wanted))]
    if len(windows) == len(sizes) and node.target in _POOLS:
        kernel, step = map(list, zip(*windows, strict=True))
        return insert_call(node, _POOLS[node.target], source, kernel, step)
    lines = [partial(functional.adaptive_avg_pool1d, output_size=want) for want in wanted]
    return weighted_sums(node, sizes, lines)


def is_convolved(source: Node) -> bool:
    """Return whether a tensor is a convolution's result after an activation of it alone."""
    seen = {source}
    queue = [source]
    for node in queue:
        if node.target in _ACTIVATIONS:
            new = set(node.all_input_nodes) - seen
            seen |= new
            queue += new
    return [node.target for node in seen if node.target not in _ACTIVATIONS] == [CONVOLUTION]


ADAPTIVE_AVG_POOL: Final = Operator(
    "adaptive_avg_pool",
    (
        aten.adaptive_avg_pool1d.default,
        aten.adaptive_avg_pool2d.default,
        aten._adaptive_avg_pool2d.default,
        aten.adaptive_avg_pool3d.default,
        aten._adaptive_avg_pool3d.default,
    ),
    rewrite=average,
    upstream="adaptive_avg_pool",
)


# With the number of dimensions that a window has.
_MAXIMA: Final[dict[Any, int]] = {aten.max_pool2d.default: 2, aten.max_pool3d.default: 3}
_AVERAGES: Final[dict[Any, int]] = {aten.avg_pool2d.default: 2, aten.avg_pool3d.default: 3}


@dataclass(frozen=True)
class _Windows:
    """The windows along one dimension; ``gap`` is the dilation, ``over`` is ``ceil_mode``."""

    size: int | torch.SymInt
    kernel: int
    step: int
    pad: int
    gap: int
    over: bool

    @property
    def reach(self) -> int:
        """Return the distance from a window's first element to the one after its last."""
        return self.gap * (self.kernel - 1) + 1

    @property
    def overhang(self) -> int:
        """Return how far the last window may reach beyond the padding.

        It starts in the tensor or the padding before it, as in torch. For a dynamic size it is the
        most that any size needs, which adds no window to the others.
        """
        if not self.over:
            return 0
        most = min(self.step - 1, self.reach - 1 - self.pad)
        if not isinstance(self.size, int):
            return most
        room = self.size + 2 * self.pad - self.reach
        return max((room + most) // self.step * self.step - room, 0)


def expand(node: Node) -> Node | None:
    """Pad the input, so that TensorRT's layer can compute the pooling."""
    given = named_arguments(node)
    is_maximum = node.target in _MAXIMA
    if is_maximum and not given["ceil_mode"] and set(_each(given["dilation"], 1)) == {1}:
        node.args = node.args[:4]  # Its converter refuses a dilation of [1, 1] too.
        return _whole_maximum(node, given)
    windows = _windows(node, given)
    if is_maximum:
        # Nothing is smaller than every integer.
        return _largest(node, windows) if node.meta["val"].is_floating_point() else None
    divisor = given["divisor_override"]
    if not given["ceil_mode"] and divisor is None:
        return None
    return _mean(node, windows, divisor, padding=given["count_include_pad"])


def _whole_maximum(node: Node, given: dict[str, Any]) -> Node | None:
    """Return the maximum of each whole image, if a window is one; else None.

    TensorRT-RTX 1.6 makes one kernel of it, and three of a pooling, which copies the image first.
    After a convolution, a pooling needs no copy.
    """
    source: Any = given["self"]
    windows = _windows(node, given)
    if (
        not node.meta["val"].is_floating_point()
        or is_convolved(source)
        or any(along.pad or not same_sizes([along.kernel], [along.size]) for along in windows)
    ):
        return None
    dims = list(range(-len(windows), 0))
    return insert_call(node, aten.amax.default, source, dims, True)


def _windows(node: Node, given: dict[str, Any]) -> list[_Windows]:
    """Return the windows of each dimension."""
    rank = (_MAXIMA | _AVERAGES)[node.target]
    sizes = given["self"].meta["val"].shape[-rank:]
    kernel = given["kernel_size"]
    numbers = (kernel, given["stride"] or kernel, given["padding"], given.get("dilation", 1))
    lines = zip(sizes, *(_each(number, rank) for number in numbers), strict=True)
    over = bool(given["ceil_mode"])
    return [_Windows(size, of, step, pad, gap, over) for size, of, step, pad, gap in lines]


def _each(sizes: Any, rank: int) -> list[int]:  # noqa: ANN401
    numbers = [sizes] if isinstance(sizes, int) else list(sizes)
    return numbers * rank if len(numbers) == 1 else numbers


def _around(pads: Sequence[tuple[int, int]]) -> list[int]:
    """Return the amounts as ``constant_pad_nd`` takes them: the last dimension first."""
    return [size for pad in reversed(pads) for size in pad]


def _largest(node: Node, windows: Sequence[_Windows]) -> Node:
    source = node.args[0]
    call = partial(insert_call, node)
    if all(along.gap == 1 for along in windows):
        around = _around([(0, along.overhang) for along in windows])
        padded = call(aten.constant_pad_nd.default, source, around, -math.inf)
        return call(node.target, padded, *_layer(windows))
    around = _around([(along.pad, along.pad + along.overhang) for along in windows])
    result = call(aten.constant_pad_nd.default, source, around, -math.inf)
    first = node.meta["val"].dim() - len(windows)
    for dim, along in enumerate(windows, first):
        starts = range(0, along.reach, along.gap)
        ends = [start + 1 - along.reach or sys.maxsize for start in starts]
        ranges = [(start, end, along.step) for start, end in zip(starts, ends, strict=True)]
        parts = [call(aten.slice.Tensor, result, dim, *each) for each in ranges]
        result = reduce(partial(call, aten.maximum.default), parts)
    return result


def _mean(node: Node, windows: Sequence[_Windows], divisor: int | None, *, padding: bool) -> Node:
    around = _around([(along.pad, along.pad + along.overhang) for along in windows])
    padded = insert_call(node, aten.constant_pad_nd.default, node.args[0], around)
    kernel, step, _ = _layer(windows)
    means = insert_call(node, node.target, padded, kernel, step)
    if divisor is not None:
        return insert_call(node, aten.mul.Tensor, means, math.prod(kernel) / divisor)
    # The padding counts, unless the call excludes it; elements beyond the padding never count.
    value = node.meta["val"]
    if not all(isinstance(along.size, int) for along in windows):
        return _by_counted(node, means, windows, padding=padding)
    counts = torch.ones([1] * (value.dim() - len(windows)), dtype=torch.float64)
    for along in windows:
        counts = counts.unsqueeze(-1) * _counts(along, padding=padding)
    factor = (math.prod(kernel) / counts).to(value.dtype)
    constant = insert_constant(node, f"_pooling_{node.name}", factor)
    return insert_call(node, aten.mul.Tensor, means, constant)


def _by_counted(node: Node, means: Node, windows: Sequence[_Windows], *, padding: bool) -> Node:
    """Divide means by the part of each window that counts: the mean of ones."""
    source: Any = node.args[0]
    call = partial(insert_call, node)
    rank, dtype = node.meta["val"].dim(), node.meta["val"].dtype
    first = rank - len(windows)
    sizes = [insert_size(node, source, dim) for dim in range(first, rank)]
    ones = call(aten.full.default, [*[1] * first, *sizes], 1.0, dtype=dtype)
    around = _around([(along.pad, along.pad) for along in windows])
    ones = call(aten.constant_pad_nd.default, ones, around, float(padding))
    beyond = _around([(0, along.overhang) for along in windows])
    ones = call(aten.constant_pad_nd.default, ones, beyond, 0.0)
    kernel, step, _ = _layer(windows)
    counted = call(node.target, ones, kernel, step)
    return call(aten.div.Tensor, means, counted)


def _counts(along: _Windows, *, padding: bool) -> torch.Tensor:
    """Return how many elements of each window count."""
    line = functional.pad(torch.ones(1, along.size), [along.pad] * 2, value=float(padding))
    line = functional.pad(line, [0, along.overhang]).to(torch.float64)
    return functional.avg_pool1d(line, along.kernel, along.step)[0] * along.kernel


def _layer(windows: Sequence[_Windows]) -> tuple[list[int], list[int], list[int]]:
    """Return the kernel size, stride and padding of a layer."""
    each = ([along.kernel, along.step, along.pad] for along in windows)
    kernel, step, pad = map(list, zip(*each, strict=True))
    return kernel, step, pad


POOLING: Final = Operator("pooling", (*_MAXIMA, *_AVERAGES), rewrite=expand)
