"""The programs that benchmarks/runtime.py measures."""

from __future__ import annotations

import torch
from torch import nn

from trt_et import TensorRTPartitioner


class Add(nn.Module):
    """As little work as an engine can do."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y


class Cache(nn.Module):
    """State that every call changes a little, as a key-value cache is."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("cache", torch.zeros(64, 256))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.cache.add_(x)
        return self.cache.sum(dim=0)


def chain(engines: int) -> list[TensorRTPartitioner]:
    """Neighbouring engines: one partitioner takes the linear layers, the other the ReLUs."""
    rest = TensorRTPartitioner(builder="reference")
    if engines == 1:
        return [rest]
    return [TensorRTPartitioner(builder="reference", excluded_ops=("aten.relu.default",)), rest]
