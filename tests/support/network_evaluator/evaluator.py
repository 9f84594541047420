"""Runs a network's layers in order, and checks each result against what the layer declares."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorrt_rtx as trt
import torch

from tests.support.network_evaluator import moving, pointwise, windows
from tests.support.network_evaluator.registry import (
    DTYPES,
    LAYERS,
    RECORDED,
    BadNetwork,
    NotEvaluated,
    layer_type,
)
from trt_et.conversion.network import Network

__all__ = ["evaluate", "moving", "pointwise", "windows"]


def evaluate(network: Network, inputs: Mapping[str, torch.Tensor]) -> list[torch.Tensor]:
    """What the network's outputs are for these inputs.

    Args:
        network: From :func:`trt_et.conversion.serialize.build_network`.
        inputs: A value for each input, by name, in the binding's dtype.

    Raises:
        NotEvaluated: It has a layer that is not known here.
        BadNetwork: TensorRT would refuse it, or leaves its result undefined.
    """
    RECORDED.set(network.interpreter.ctx.weight_refit_map)
    net = network.network
    values = {net.get_input(i).name: inputs[net.get_input(i).name] for i in range(net.num_inputs)}
    # Not in the order in which they were added: an input may be set later.
    layers = [net.get_layer(index) for index in range(net.num_layers)]
    waiting = [(layer, _takes(layer)) for layer in layers]
    while waiting:
        later = []
        for layer, names in waiting:
            if names <= values.keys():
                _run(layer, values)
            else:
                later.append((layer, names))
        if len(later) == len(waiting):
            raise BadNetwork(f"nothing gives {sorted(later[0][1] - values.keys())}")
        waiting = later
    return [values[net.get_output(i).name] for i in range(net.num_outputs)]


def _takes(layer: Any) -> set[str]:
    given = (layer.get_input(i) for i in range(layer.num_inputs))
    return {tensor.name for tensor in given if tensor is not None}


def _run(layer: Any, values: dict[str, torch.Tensor]) -> None:
    layer.__class__ = trt.ILayer
    kind = layer.type
    name = f"{kind.name} {layer.name}"
    given = [layer.get_input(i) for i in range(layer.num_inputs)]
    taken = [None if tensor is None else values[tensor.name] for tensor in given]
    outputs = [layer.get_output(i) for i in range(layer.num_outputs)]
    if kind not in LAYERS:
        raise NotEvaluated(kind.name)
    layer.__class__, function = LAYERS[kind]
    try:
        results = function(layer, *taken)
    except (BadNetwork, NotEvaluated) as error:
        raise type(error)(f"{name}: {error}") from error
    except Exception as error:
        raise BadNetwork(f"{name}: {type(error).__name__}: {error}") from error
    results = (results,) if isinstance(results, torch.Tensor) else results
    for tensor, result in zip(outputs, results, strict=True):
        _check(name, tensor, result)
        values[tensor.name] = result


def _check(name: str, tensor: Any, result: torch.Tensor) -> None:
    declared = DTYPES[tensor.dtype]
    if declared != result.dtype:
        raise BadNetwork(f"{name}: declared {declared}, computed {result.dtype}")
    try:
        shape = list(tensor.shape)
    except (ValueError, RuntimeError) as error:  # TensorRT-RTX 1.5, and 1.6.
        raise BadNetwork(f"{name}: TensorRT finds no shape for its output") from error
    if len(shape) != result.dim() or any(
        want not in (-1, have) for want, have in zip(shape, result.shape, strict=True)
    ):
        raise BadNetwork(f"{name}: declared {shape}, computed {list(result.shape)}")


@layer_type("CONSTANT")
def _constant(layer: Any) -> torch.Tensor:
    shape, recorded, weights = list(layer.shape), RECORDED.get(), layer.weights
    if isinstance(weights, trt.Weights):
        for name in (layer.name, f"{layer.name} CONSTANT"):
            if name in recorded:
                return recorded[name].reshape(shape)
        raise NotEvaluated(layer.get_output(0).dtype.name)
    dtype = DTYPES.get(layer.get_output(0).dtype)
    return torch.as_tensor(weights.copy()).reshape(shape).to(dtype)
