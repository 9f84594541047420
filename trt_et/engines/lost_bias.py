"""Keeps the biases of matrix products in engines of TensorRT-RTX.

TensorRT-RTX 1.5 to 1.7 compute a product, its bias and ReLU or GELU in one kernel, and what
multiplies the result in another one. On an H200, such a kernel leaves out the bias
(``docs/internals/upstream/rtx_lost_bias.md``). The engine's text shows which kernels it has, and
with a sum of 0 between a product and its bias there is none of this form. The native builder does
the same (``build/lost_bias.cpp``).
"""

from __future__ import annotations

import logging
import os
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from typing import Any, Final

import numpy

from trt_et.conversion.network import Network
from trt_et.errors import BuilderError
from trt_et.inspection.kernels import lost_biases, nodes_named

_log = logging.getLogger(__name__)

_ANYWAY: Final = "TRT_ET_ANY_KERNEL"
_PLUS_ZERO: Final = "_plus_0"  # At the end of the names of the layers that add 0.
_ZERO: Final = numpy.zeros(1, numpy.float32)  # In each floating-point type.


def keeps_biases(network: Network, engine: memoryview, partition: str) -> bool:
    """Check an engine; if it may lose a bias, change its network so that the next engine does not.

    Args:
        network: The network that the engine was built of.
        engine: The serialized engine.
        partition: The partition's name, for messages.

    Returns:
        False if the engine has to be built again.

    Raises:
        BuilderError: The changed network's engine may lose a bias, too.
    """
    results = lost_biases(engine)
    if results is None:
        _say_unread(str(network.trt.__version__))
    if not results:
        return True
    nodes = ", ".join(nodes_named(results) or results)
    problem = f"partition {partition}: TensorRT-RTX has a kernel that may lose the bias of {nodes}"
    if _add_zeros(network):
        _log.info("%s; building the engine again, with 0 added before the bias", problem)
        return False
    if os.environ.get(_ANYWAY) != "1":
        raise BuilderError(
            f"{problem}. Leave the node to the CPU (excluded_ops=...), or set {_ANYWAY}=1 to build "
            "the engine all the same"
        )
    _log.warning("%s; it is built all the same (%s=1)", problem, _ANYWAY)
    return True


@cache
def _say_unread(version: str) -> None:
    _log.warning(
        "the kernels of engines of TensorRT-RTX %s cannot be read: whether one loses a bias is not "
        "checked",
        version,
    )


def _add_zeros(network: Network) -> bool:
    """Add 0 to the products that activations are computed of; return whether there are new ones."""
    trt, net = network.trt, network.network
    layers = [net.get_layer(index) for index in range(net.num_layers)]
    users: dict[str, list[tuple[Any, int]]] = defaultdict(list)
    for layer in layers:
        for index, tensor in _inputs(layer):
            users[tensor.name].append((layer, index))
    changed = False
    for product in _products_before_activations(trt.LayerType, layers):
        tensor = product.get_output(0)
        if any(layer.name.endswith(_PLUS_ZERO) for layer, _ in users[tensor.name]):
            continue
        weights = trt.Weights(tensor.dtype, _ZERO.ctypes.data, 1)
        zero = net.add_constant([1] * len(tensor.shape), weights).get_output(0)
        total = net.add_elementwise(tensor, zero, trt.ElementWiseOperation.SUM)
        total.name = f"{product.name}{_PLUS_ZERO}"
        for layer, index in users[tensor.name]:
            layer.set_input(index, total.get_output(0))
        changed = True
    return changed


def _products_before_activations(kinds: Any, layers: list[Any]) -> Iterator[Any]:  # noqa: ANN401
    """Yield the nearest products on all ways from activations back to the network's inputs."""
    makers = {layer.get_output(i).name: layer for layer in layers for i in range(layer.num_outputs)}
    pending = [layer for layer in layers if layer.type in (kinds.ACTIVATION, kinds.UNARY)]
    for layer in pending:
        for _, tensor in _inputs(layer):
            maker = makers.pop(tensor.name, None)
            if maker is not None and maker.type == kinds.MATRIX_MULTIPLY:
                yield maker
            elif maker is not None:
                pending.append(maker)


def _inputs(layer: Any) -> Iterator[tuple[int, Any]]:  # noqa: ANN401
    for index in range(layer.num_inputs):
        tensor = layer.get_input(index)
        if tensor is not None:  # An input that is left out.
            yield index, tensor
