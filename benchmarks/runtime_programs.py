"""The programs that benchmarks/runtime.py measures."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import torch
from executorch.exir.backend.partitioner import Partitioner

from tests.support.gpu.make_kit import export_model
from trt_et import TensorRTPartitioner
from trt_et.engine_info import decode_blob
from trt_et.inspection import inspect_program


class Layers(torch.nn.Module):
    """Linear layers with ReLU between them."""

    def __init__(self, count: int, width: int) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(width, width) for _ in range(count))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x


class Add(torch.nn.Module):
    """As little work as an engine can do."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y


class Cache(torch.nn.Module):
    """State that every call changes a little, as a key-value cache is."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("cache", torch.zeros(64, 256))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.cache.add_(x)
        return self.cache.sum(dim=0)


def chain(engines: int) -> list[Partitioner]:
    """Neighbouring engines: one partitioner takes the linear layers, the other the ReLUs."""
    if engines == 1:
        return [TensorRTPartitioner(builder="reference")]
    return [
        TensorRTPartitioner(builder="reference", excluded_ops=("aten.relu.default",)),
        TensorRTPartitioner(builder="reference"),
    ]


def export(
    path: Path,
    module: torch.nn.Module,
    inputs: tuple[torch.Tensor, ...],
    partitioner: Collection[Partitioner] | None = None,
    *,
    where: str = "planned",
) -> Path:
    """Write a program: ``planned`` on the GPU, on the ``host``, or with its I/O ``on_device``."""
    chosen = partitioner or [TensorRTPartitioner(builder="reference")]
    export_model(module, inputs, list(chosen), path, where=where)
    return path


def extract_engine(program: Path) -> Path:
    """The engine of a program's first delegate, which is a program too, as a file of its own."""
    blob = inspect_program(program.read_bytes())[0].delegates[0].blob
    path = program.with_suffix(".engine.pte")
    path.write_bytes(decode_blob(blob).engine)
    return path
