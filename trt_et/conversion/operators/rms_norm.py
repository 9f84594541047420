"""``rms_norm``, for which Torch-TensorRT 2.13 has no converter."""

from __future__ import annotations

from typing import Any, Final

import torch

from trt_et.conversion.layers import Layers
from trt_et.conversion.operator import Operator
from trt_et.graph.arguments import named_arguments


def add_rms_norm(layers: Layers, args: Any, kwargs: Any) -> Any:  # noqa: ANN401
    """Add ``x * rsqrt(mean(x ** 2) + eps) * weight``, computed in float32, as torch does."""
    named = named_arguments(layers.node)
    source = layers.tensor(args[0], "input")
    net, trt = layers.net, layers.trt
    times, wide = trt.ElementWiseOperation.PROD, layers.cast(source, torch.float32, "wide")
    eps = torch.finfo(torch.float32).eps if named["eps"] is None else named["eps"]

    def result(name: str, layer: Any) -> Any:  # noqa: ANN401
        return layers.result(layer, name)

    rank, dims = len(source.shape), len(args[1])
    axes = sum(1 << dim for dim in range(rank - dims, rank))
    square = result("square", net.add_elementwise(wide, wide, times))
    mean = result("mean", net.add_reduce(square, trt.ReduceOperation.AVG, axes, True))
    epsilon = layers.tensor(torch.full([1] * rank, eps, dtype=torch.float32), "eps")
    total = result("sum", net.add_elementwise(mean, epsilon, trt.ElementWiseOperation.SUM))
    root = result("root", net.add_unary(total, trt.UnaryOperation.SQRT))
    factor = result("factor", net.add_unary(root, trt.UnaryOperation.RECIP))
    wide = result("normalized", net.add_elementwise(wide, factor, times))
    if named["weight"] is not None:
        weight = layers.cast(layers.tensor(args[2], "weight"), torch.float32, "wide_weight")
        shuffle = net.add_shuffle(weight)
        shuffle.reshape_dims = [1] * (rank - dims) + list(args[1])
        wide = result("scaled", net.add_elementwise(wide, result("weight_in_rank", shuffle), times))
    return layers.cast(wide, layers.node.meta["val"].dtype, "result")


RMS_NORM: Final = Operator("rms_norm", (torch.ops.aten.rms_norm.default,), add_layer=add_rms_norm)
