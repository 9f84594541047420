"""Small networks whose engines are compared with eager on a GPU: operators, and what fuses."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils._pytree import tree_flatten

from benchmarks.engines.models import Model
from benchmarks.engines.operators import DTYPES, inputs_of, make_network, names


class Then(nn.Module):
    """A layer, and a function of what it returns."""

    def __init__(self, layer: nn.Module, function: Callable[[torch.Tensor], Any]) -> None:
        super().__init__()
        self.layer, self.function = layer, function

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(self.layer(x))


class Times(Then):
    """The function's result times the input."""

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(self.layer(x)) * x


class Product(nn.Module):
    """A product of matrices and a bias, as programs write them beside ``nn.Linear``."""

    def __init__(self, function: Callable[..., torch.Tensor], size: int = 64) -> None:
        super().__init__()
        self.function = function
        self.weight = nn.Parameter(torch.randn(size, size))
        self.bias = nn.Parameter(torch.randn(size))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x, self.weight, self.bias)


def _scale(x: torch.Tensor) -> torch.Tensor:
    return x * 2.0 + 1.0


def _same(x: torch.Tensor) -> torch.Tensor:
    return x


def _batched(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.baddbmm(b, x[None], w[None])[0]


def _gated(activation: Callable[[torch.Tensor], torch.Tensor], y: torch.Tensor) -> torch.Tensor:
    value, gate = y.chunk(2, -1)
    return value * activation(gate)


_ROWS, _IMAGE = (4, 64), (2, 32, 28, 28)
_FUSIONS: dict[str, tuple[Callable[[], nn.Module], Any, tuple[int, ...]]] = {
    "linear_relu_scale": (lambda: nn.Linear(64, 64), lambda y: _scale(y.relu()), _ROWS),
    "linear_relu_scale_large": (
        lambda: nn.Linear(512, 256),
        lambda y: _scale(y.relu()),
        (128, 512),
    ),
    "linear_scale": (lambda: nn.Linear(64, 64), _scale, _ROWS),
    "linear_gelu_scale": (
        lambda: nn.Linear(64, 64),
        lambda y: _scale(functional.gelu(y)),
        _ROWS,
    ),
    "geglu": (lambda: nn.Linear(64, 128), partial(_gated, functional.gelu), _ROWS),
    "reglu": (lambda: nn.Linear(64, 128), partial(_gated, functional.relu), _ROWS),
    "geglu_slices": (
        lambda: nn.Linear(64, 128),
        lambda y: y[..., :64] * functional.gelu(y[..., 64:]),
        _ROWS,
    ),
    "geglu_split": (
        lambda: nn.Linear(64, 128),
        lambda y: y.split(64, -1)[0] * functional.gelu(y.split(64, -1)[1]),
        _ROWS,
    ),
    "linear_gelu_times": (lambda: Times(nn.Linear(64, 64), functional.gelu), _same, _ROWS),
    "matmul_relu_times": (
        lambda: Times(Product(lambda x, w, b: x @ w + b), torch.relu),
        _same,
        _ROWS,
    ),
    "linear_plus_relu_times": (
        lambda: Times(Product(lambda x, w, b: functional.linear(x, w) + b), torch.relu),
        _same,
        _ROWS,
    ),
    "addmm_relu_times": (
        lambda: Times(Product(lambda x, w, b: torch.addmm(b, x, w)), torch.relu),
        _same,
        _ROWS,
    ),
    "baddbmm_relu_times": (lambda: Times(Product(_batched), torch.relu), _same, _ROWS),
    "linear_permute_relu_scale": (
        lambda: nn.Linear(64, 64),
        lambda y: y.permute(0, 2, 1).relu() * 2.0,
        (2, 4, 64),
    ),
    "linear_sigmoid_scale": (lambda: nn.Linear(64, 64), lambda y: _scale(y.sigmoid()), _ROWS),
    "linear_relu_softmax": (lambda: nn.Linear(64, 64), lambda y: y.relu().softmax(-1), _ROWS),
    "linear_relu_sum": (lambda: nn.Linear(64, 64), lambda y: y.relu().sum(-1), _ROWS),
    "linear_relu_sine": (lambda: nn.Linear(64, 64), lambda y: y.relu().sin(), _ROWS),
    "linear_relu_twice": (lambda: nn.Linear(64, 64), lambda y: (y.relu(), y.relu() * 2.0), _ROWS),
    "linear_relu_layer_norm": (
        lambda: nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.LayerNorm(64)),
        lambda y: y,
        _ROWS,
    ),
    "linear_relu_3d": (lambda: nn.Linear(64, 64), lambda y: _scale(y.relu()), (2, 4, 64)),
    "conv_relu_scale": (
        lambda: nn.Conv2d(32, 48, 3, padding=1),
        lambda y: _scale(y.relu()),
        _IMAGE,
    ),
    "conv_1x1_relu_scale": (lambda: nn.Conv2d(32, 48, 1), lambda y: _scale(y.relu()), _IMAGE),
    "conv_relu_sine": (lambda: nn.Conv2d(32, 48, 3), lambda y: y.relu().sin(), _IMAGE),
    "classifier": (
        lambda: nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10), nn.Softmax(-1)),
        lambda y: y,
        _ROWS,
    ),
    "classifier_relu6": (
        lambda: nn.Sequential(nn.Linear(64, 128), nn.ReLU6(), nn.Linear(128, 10)),
        lambda y: y,
        _ROWS,
    ),
}


# These are exported with a dynamic batch, too.
_DYNAMIC = (
    *("linear_relu_scale", "linear_gelu_scale", "linear_relu_layer_norm", "conv_relu_scale"),
    *("conv_1x1_relu_scale", "classifier", "softmax", "layer_norm", "linear", "mlp_gelu"),
    *("attention", "attention_causal", "attention_bool_mask", "lstm", "topk"),
)
_ANY_BATCH = "any_batch_"


def operator_names() -> list[str]:
    """Each network in each dtype, such as ``"softmax.float16"``."""
    every = (*_FUSIONS, *names(), *(_ANY_BATCH + name for name in _DYNAMIC))
    return [f"{name}.{dtype}" for name in every for dtype in DTYPES]


def make_operator(name: str) -> Model:
    """Return the network of that name, the same on each machine.

    Its products of an input of size 1 have size 1, as have its biases: none may get lost.
    """
    network, _, dtype = name.rpartition(".")
    static = network.removeprefix(_ANY_BATCH)
    model = _fusion(static) if static in _FUSIONS else make_network(static)
    random = torch.Generator().manual_seed(0)
    for parameter in model.module.parameters():
        fan_in = parameter[0].numel() if parameter.dim() > 1 else 1
        parameter.copy_(torch.randn(parameter.shape, generator=random) / math.sqrt(fan_in))
    if static != network:
        shapes = ({0: torch.export.Dim("batch", max=8)},) * len(model.inputs)
        # The other networks take their inputs as one tuple.
        model = replace(model, dynamic_shapes=shapes if static in _FUSIONS else (shapes,))
    return model.half() if dtype == "float16" else model


def other_inputs(name: str) -> tuple[torch.Tensor, ...]:
    """Return inputs of the network of that name beside those that it is made with."""
    network, _, dtype = name.rpartition(".")
    static = network.removeprefix(_ANY_BATCH)
    torch.manual_seed(1)
    inputs = (torch.randn(_FUSIONS[static][2]),) if static in _FUSIONS else inputs_of(static)
    half = dtype == "float16"
    return tuple(x.half() if half and x.is_floating_point() else x for x in inputs)


def eager_outputs(model: Model) -> list[torch.Tensor]:
    """Return what eager PyTorch returns on the CPU, contiguous as a program's outputs are."""
    with torch.no_grad():
        return [each.contiguous() for each in tree_flatten(model.module(*model.inputs))[0]]


def _fusion(name: str) -> Model:
    torch.manual_seed(0)
    make, function, shape = _FUSIONS[name]
    return Model(Then(make(), function).eval().requires_grad_(False), (torch.randn(shape),))


def write_operators(
    folder: Path, builder: str, chosen: Sequence[str], export: Callable[..., None]
) -> None:
    """Write a program of each network that PyTorch runs on a CPU: ``NAME.BUILDER.pte``.

    The others have nothing to be compared with: ``NAME.left_out`` says why.

    ``export`` takes a module, inputs, a path and dynamic shapes.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name in chosen:
        model = make_operator(name)
        try:
            eager_outputs(model)
        except NotImplementedError as error:  # Of some operators in float16.
            (folder / f"{name}.left_out").write_text(str(error))
            continue
        path = folder / f"{name}.{builder}.pte"
        export(model.module, model.inputs, path, model.dynamic_shapes)
