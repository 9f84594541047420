"""Normalization by the input's own statistics; layer norms and RMS norms.

Torch-TensorRT 2.13 converts a batch norm of its input's statistics as one whose running mean is 0
and variance 1, so it does not normalize: it is written out as sums and products. It has no
converter of instance norms and RMS norms. It converts layer norms to TensorRT's layer, which
returns no statistics, and repeats weight and bias to the size of the input, which TensorRT-RTX then
stores.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import torch
from torch.fx import Node

from trt_et.conversion.layers import Layers
from trt_et.conversion.operator import Operator
from trt_et.conversion.operators.types import cast
from trt_et.graph.arguments import named_arguments
from trt_et.graph.insertion import insert_call

aten = torch.ops.aten

# The index of the argument ``training`` or ``use_input_stats``; ``eps`` is two after it.
_TRAINING: Final[dict[Any, int]] = {
    aten._native_batch_norm_legit.no_stats: 3,
    aten.native_batch_norm.default: 5,
    aten._native_batch_norm_legit.default: 5,
    aten._native_batch_norm_legit_functional.default: 5,
}


def expand(node: Node) -> None:
    """Expand a batch norm that uses its input's mean and variance.

    Compute the mean and the variance of a layer norm if something uses them.
    """
    if node.target is aten.native_layer_norm.default:
        _compute_statistics(node)
    elif node.args[_TRAINING[node.target]]:
        _write_out(node)


def add_layer_norm(layers: Layers, args: Any, kwargs: Any) -> Any:  # noqa: ANN401
    """Add TensorRT's normalization, with weight and bias in the shape that it normalizes."""
    shape, weight, bias, eps = args[1:5]
    if kwargs or not all(isinstance(size, int) for size in shape):
        return layers.convert(args, kwargs)
    source = layers.tensor(args[0], "input")
    rank = len(source.shape)
    first = rank - len(shape)
    dims, sizes = range(first, rank), [*[1] * first, *shape]
    return _normalized(layers, "layer_norm", source, weight, bias, dims, sizes, eps), None, None


def add_instance_norm(layers: Layers, args: Any, kwargs: Any) -> Any:  # noqa: ANN401
    """Add TensorRT's normalization over the spatial dimensions."""
    named = named_arguments(layers.node)
    weight, bias = args[1:3]
    source = layers.tensor(args[0], "input")
    rank = len(source.shape)
    sizes = [1, layers.node.meta["val"].shape[1], *[1] * (rank - 2)]
    dims = range(2, rank)
    return _normalized(layers, "instance_norm", source, weight, bias, dims, sizes, named["eps"])


def _normalized(
    layers: Layers,
    name: str,
    source: Any,  # noqa: ANN401
    weight: Any,  # noqa: ANN401
    bias: Any,  # noqa: ANN401
    dims: range,
    sizes: list[int],
    eps: float,
) -> Any:  # noqa: ANN401
    """Add a normalization over ``dims``; ``sizes`` is the shape of its weight and bias."""
    factors = []
    for value, role, number in ((weight, "weight", 1.0), (bias, "bias", 0.0)):
        value = torch.full(sizes, number) if value is None else value
        value = layers.tensor(value, role, source.dtype)
        value = layers.cast(value, source.dtype, f"{role}_cast")
        shuffle = layers.net.add_shuffle(value)
        shuffle.reshape_dims = sizes
        factors.append(layers.result(shuffle, f"{role}_in_rank_{len(sizes)}"))
    layer = layers.net.add_normalization(source, *factors, sum(1 << dim for dim in dims))
    layer.epsilon = eps
    return layers.result(layer, name)


def running_statistics(node: Node) -> str | None:
    """Refuse an instance norm that uses its running statistics: ExecuTorch decomposes it."""
    if named_arguments(node)["use_input_stats"] and isinstance(node.meta["val"].shape[1], int):
        return None
    return "it uses running statistics"


def _write_out(node: Node) -> None:
    first = next((user for user in node.users if user.args[1] == 0), None)
    if first is None:
        return
    source, weight, bias = node.args[:3]
    assert isinstance(source, Node)
    value = source.meta["val"]
    epsilon: Any = node.args[_TRAINING[node.target] + 2]

    call = partial(insert_call, first)
    dims = [dim for dim in range(value.dim()) if dim != 1]
    centered, _, deviation = _statistics(first, source, dims, epsilon)
    result = call(aten.mul.Tensor, centered, deviation)
    shape = [-1 if dim == 1 else 1 for dim in range(value.dim())]
    if isinstance(weight, Node):
        result = call(aten.mul.Tensor, result, call(aten.reshape.default, weight, shape))
    if isinstance(bias, Node):
        result = call(aten.add.Tensor, result, call(aten.reshape.default, bias, shape))
    first.replace_all_uses_with(cast(first, result, value.dtype))


def _statistics(before: Node, source: Node, dims: list[int], eps: Any) -> tuple[Node, Node, Node]:  # noqa: ANN401
    """Compute the input less its mean, the mean, and 1 by the standard deviation, in float32."""
    call = partial(insert_call, before)
    # Half precision is summed in float32, as torch does it.
    exact = call(aten._to_copy.default, source, dtype=torch.float32)
    mean = call(aten.mean.dim, exact, dims, True)
    centered = call(aten.sub.Tensor, exact, mean)
    square = call(aten.mul.Tensor, centered, centered)
    variance = call(aten.add.Scalar, call(aten.mean.dim, square, dims, True), eps)
    return centered, mean, call(aten.rsqrt.default, variance)


def _compute_statistics(node: Node) -> None:
    others = [user for user in node.users if user.args[1] != 0 and user.users]
    if not others:
        return
    source, shape, eps = node.args[0], node.args[1], node.args[4]
    assert isinstance(source, Node)
    rank = source.meta["val"].dim()
    dims = list(range(rank - len(shape), rank))  # type: ignore[arg-type]
    for user in others:
        _, mean, deviation = _statistics(user, source, dims, eps)
        result = mean if user.args[1] == 1 else deviation
        user.replace_all_uses_with(cast(user, result, user.meta["val"].dtype))


NORMALIZATION: Final = Operator(
    "normalization", (*_TRAINING, aten.native_layer_norm.default), rewrite=expand
)
INSTANCE_NORM: Final = Operator(
    "instance_norm",
    (aten.instance_norm.default,),
    unsupported=running_statistics,
    add_layer=add_instance_norm,
)
LAYER_NORM: Final = Operator(
    "layer_norm", (aten.native_layer_norm.default,), add_layer=add_layer_norm
)


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


RMS_NORM: Final = Operator("rms_norm", (aten.rms_norm.default,), add_layer=add_rms_norm)
