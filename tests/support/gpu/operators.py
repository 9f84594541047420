"""Small networks whose engines are compared with eager on a GPU: operators, and what fuses."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

from benchmarks.engines.models import Model
from benchmarks.engines.operators import DTYPES, make_network, names
from tests.support.gpu.kit import write_model


class Then(nn.Module):
    """A layer, and a function of what it returns."""

    def __init__(self, layer: nn.Module, function: Callable[[torch.Tensor], Any]) -> None:
        super().__init__()
        self.layer, self.function = layer, function

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(self.layer(x))


def _scale(x: torch.Tensor) -> torch.Tensor:
    return x * 2.0 + 1.0


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
        lambda y: _scale(nn.functional.gelu(y)),
        _ROWS,
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


def operator_models() -> Iterator[tuple[str, Model]]:
    """Each network in each dtype, by names such as ``"softmax.float16"``."""
    for dtype in DTYPES:
        for name in (*_FUSIONS, *names()):
            model = _fusion(name) if name in _FUSIONS else make_network(name)
            yield f"{name}.{dtype}", model.half() if dtype == "float16" else model


def _fusion(name: str) -> Model:
    torch.manual_seed(0)
    make, function, shape = _FUSIONS[name]
    return Model(Then(make(), function).eval().requires_grad_(False), (torch.randn(shape),))


def write_operators(folder: Path, export: Callable[..., None]) -> None:
    """Write the programs that have an engine; ``export`` takes a module, inputs and a path."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, model in operator_models():
        path = folder / f"{name}.tensorrt_rtx.pte"
        try:
            write_model(folder, name, model.module, model.inputs)
            export(model.module, model.inputs, path)
        except Exception as error:
            logging.getLogger(__name__).warning("%s is not exported: %s", name, error)
            path.unlink(missing_ok=True)
