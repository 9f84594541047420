"""Models that ``described_engines`` can build: chains of linear layers, ReLUs, sums and numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from tests.support.models import Function

WIDTH = 64
BATCH = 4


@dataclass(frozen=True)
class NativeModel:
    """A model with its inputs, and how it is exported."""

    model: nn.Module
    inputs: tuple[torch.Tensor, ...]
    dynamic_shapes: tuple[Any, ...] | None = None
    excluded_ops: tuple[str, ...] = ()  # Left to the CPU, so that there are several engines.
    timed: bool = False  # One engine of static shapes: calls are compared with the bare API.


class Line(nn.Module):
    """Linear layers with ReLU behind each, times two, plus one."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(layers))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x * 2.0 + 1.0


def dense() -> nn.Module:
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU())


class Pair(nn.Module):
    """Two inputs, two outputs."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return (x + y) * 3.0, torch.relu(y)


def native_models(depth: int = 60) -> dict[str, NativeModel]:
    """By name; the same numbers in every process. ``depth``: the layers of ``deep``."""
    torch.manual_seed(0)
    x, y = torch.randn(BATCH, WIDTH), torch.randn(BATCH, WIDTH)
    # executor_runner takes inputs of the largest size.
    batch = torch.export.Dim("batch", min=1, max=BATCH)
    return {
        "line": NativeModel(Line(2), (x,), timed=True),
        # More than fifty kernels: what a CUDA graph is for.
        "deep": NativeModel(Line(depth), (x,), timed=True),
        "pair": NativeModel(Pair(), (x, y), timed=True),
        "dynamic": NativeModel(Line(2), (x,), ({0: batch},)),
        # An engine, a sine on the CPU, an engine.
        "cut": NativeModel(
            nn.Sequential(dense(), Function(torch.sin), dense()),
            (x,),
            excluded_ops=("aten.sin.default",),
        ),
    }
