"""Networks of which TensorRT-RTX builds a kernel that may lose a bias, unless 0 is added to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

BATCH, ROWS, BATCHES = torch.randn(1, 32, 64), torch.randn(32, 64), torch.randn(4, 32, 64)


class Weights(nn.Module):
    """A function of these layers and weights, and of inputs."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function
        self.linear, self.wide = nn.Linear(64, 64), nn.Linear(64, 128)
        self.plain = nn.Linear(64, 64, bias=False)
        self.weight, self.weights = (nn.Parameter(torch.randn(*n, 64, 64)) for n in ((), (4,)))
        self.bias = nn.Parameter(torch.randn(64))

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(self, *inputs)


def geglu(m: Weights, x: torch.Tensor) -> torch.Tensor:
    value, gate = m.wide(x).chunk(2, -1)
    return value * F.gelu(gate)


def split(m: Weights, x: torch.Tensor) -> torch.Tensor:
    gate, value = m.wide(x).split([64, 64], -1)
    return F.gelu(gate, approximate="tanh") * value


def sliced(m: Weights, x: torch.Tensor) -> torch.Tensor:
    y = m.wide(x)
    return F.relu(y[..., :64]) * y[..., 64:]


def gelu_by_hand(m: Weights, x: torch.Tensor) -> torch.Tensor:
    y = m.linear(x)
    return y * 0.5 * (1 + torch.erf(y / 2**0.5)) * x


def sum_read_twice(m: Weights, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    y = m.linear(x)
    return y, F.relu(y) * x


def squared(m: Weights, x: torch.Tensor) -> torch.Tensor:
    y = F.relu(m.linear(x))
    return y * y


FORMS: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = {
    "linear": (lambda m, x: F.gelu(m.linear(x)) * x, (BATCH,)),
    "GEGLU by chunk": (geglu, (BATCH,)),
    "a product and a sum": (lambda m, x: F.relu(x @ m.weight + m.bias) * x, (BATCH,)),
    "addmm": (lambda m, x: F.relu(torch.addmm(m.bias, x, m.weight)) * x, (ROWS,)),
    "permuted": (lambda m, x: F.relu(m.linear(x).mT) * x.mT, (BATCH,)),
    "einsum": (
        lambda m, x: F.relu(torch.einsum("btc,cd->btd", x, m.weight) + m.bias) * x,
        (BATCH,),
    ),
    "bias first": (lambda m, x: F.relu(m.bias + m.plain(x)) * x, (BATCH,)),
    "split": (split, (BATCH,)),
    "sliced": (sliced, (BATCH,)),
    "a bias that is an input": (
        lambda m, x, bias: F.relu(x @ m.weight + bias) * x,
        (BATCH, torch.randn(64)),
    ),
    "a bias that is subtracted": (lambda m, x: F.relu(x @ m.weight - m.bias) * x, (BATCH,)),
    "GELU by hand": (gelu_by_hand, (BATCH,)),
    "mm, by a number": (lambda m, x: F.relu(x.mm(m.weight) + m.bias) * 2, (ROWS,)),
    "bmm": (lambda m, x: F.relu(torch.bmm(x, m.weights) + m.bias) * x, (BATCHES,)),
    "squared": (squared, (BATCH,)),
    "sum read twice": (sum_read_twice, (BATCH,)),
    "approximate GELU": (lambda m, x: F.gelu(m.linear(x), approximate="tanh") * x, (BATCH,)),
}


def export(name: str, dtype: torch.dtype = torch.float16) -> torch.export.ExportedProgram:
    """The program of a form."""
    function, inputs = FORMS[name]
    torch.manual_seed(0)
    model = Weights(function).to(dtype).eval().requires_grad_(False)
    return torch.export.export(model, tuple(x.to(dtype) for x in inputs))
