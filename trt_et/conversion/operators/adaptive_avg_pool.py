"""Average pooling to a size that does not divide the old one."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import torch
from torch.fx import Node
from torch.nn import functional

from trt_et.conversion.operator import Operator
from trt_et.conversion.operators.weighted_sums import weighted_sums
from trt_et.graph.insertion import insert_call
from trt_et.graph.operators import ACTIVATIONS, CONVOLUTION
from trt_et.graph.symbolic_shapes import is_static

aten = torch.ops.aten

# ``mul`` of a tensor and an activation of it: silu, hardswish, mish.
_ACTIVATIONS: Final = ACTIVATIONS - {aten.erf.default, aten._prelu_kernel.default} | {
    *(aten.clamp.default, aten.softplus.default, aten.mul.Tensor),
}


def average(node: Node) -> Node | None:
    """Average by weighted sums.

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
