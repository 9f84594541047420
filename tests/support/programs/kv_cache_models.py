"""Models with KV caches: what may be updated in place, and what must not be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from tests.support.lowering import lower
from trt_et.engines import BuildRequest, EngineBuilder
from trt_et.engines.reference.builder import ReferenceBuilder

BATCH, HEADS, LENGTH, WIDTH = 2, 3, 8, 4
SHAPE = (BATCH, HEADS, LENGTH, WIDTH)


class Cache(nn.Module):
    """Writes rows with a function of (cache, position, rows), and returns what reads the cache."""

    def __init__(
        self,
        write: Callable[[torch.Tensor, torch.Tensor, torch.Tensor], Any],
        shape: tuple[int, ...] = SHAPE,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        self.write = write
        count = torch.Size(shape).numel()
        self.register_buffer("cache", torch.arange(count).reshape(shape).to(dtype))

    def forward(self, position: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        self.write(self.cache, position, rows)
        return self.cache * 2


class Recorder(EngineBuilder):
    """The reference builder; keeps what it was asked for."""

    name = "recorder"

    def __init__(self) -> None:
        self.requests: list[BuildRequest] = []

    def build(self, request: BuildRequest) -> bytes:
        self.requests.append(request)
        return ReferenceBuilder().build(request)


def recorded(
    model: nn.Module, inputs: tuple[torch.Tensor, ...], **options: Any
) -> tuple[list[BuildRequest], bytes]:
    """What is asked of a builder for a model, and the program that it makes."""
    recorder = Recorder()
    dynamic, strict = options.pop("dynamic_shapes", None), options.pop("strict", False)
    with torch.no_grad():
        program = torch.export.export(model.eval(), inputs, dynamic_shapes=dynamic, strict=strict)
        return recorder.requests, lower(program, builder=recorder, progress=False, **options)
