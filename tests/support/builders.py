"""Small partitions and a builder that costs nothing, so that many builds can be watched."""

from __future__ import annotations

import json
import os
from functools import cache
from pathlib import Path

import torch
from torch import nn

from tests.support.native_blobs import HEADER, pack
from trt_et.engine_info import EngineInfo, encode_blob
from trt_et.engine_program.make_program import make_engine_program
from trt_et.engines import BuildOptions, BuildRequest, EngineBuilder
from trt_et.engines.build import build_engines
from trt_et.engines.job import Job
from trt_et.engines.reference.builder import ReferenceBuilder

OPTIONS = BuildOptions()


class CheapBuilder(EngineBuilder):
    """Its engine is made of the weights, repeated; it notes every build in a file."""

    name = "cheap"

    def __init__(self, log: Path | None = None, *, repeat: int = 1, version: str = "1") -> None:
        self.log = log
        self.repeat = repeat
        self.version = version
        self.built: list[str] = []

    def fingerprint(self) -> str:
        return f"cheap {self.version}"

    def build(self, request: BuildRequest) -> bytes:
        self.built.append(request.partition)
        if self.log is not None:
            with self.log.open("a") as file:
                file.write(f"{os.getpid()}\n")
        weights = b"".join(
            value.detach().numpy().tobytes() for value in request.program.constants.values()
        )
        info = EngineInfo(request.program.bindings, request.device_id, builder=self.name)
        return encode_blob(weights * self.repeat, info)


class Two(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 4, bias=False)

    def forward(self, x):
        return self.second(torch.relu(self.first(x)))


@cache
def program() -> torch.export.ExportedProgram:
    """A partition; plain ATen is what lowering makes of the Edge dialect anyway."""
    with torch.no_grad():
        return torch.export.export(Two().eval(), (torch.ones(2, 4),))


def export(model: nn.Module, *inputs: torch.Tensor, **options) -> torch.export.ExportedProgram:
    with torch.no_grad():
        return torch.export.export(model.eval(), inputs, **options)


def request(program: torch.export.ExportedProgram, **changes) -> BuildRequest:
    given = {"device_id": 0, "options": OPTIONS, **changes}
    return BuildRequest("test", make_engine_program(program, "test"), **given)


def built_by(builder, cache=None, *, name="part", device=0, options=OPTIONS, executor=None):
    return Job(name, builder, device, options, cache, executor)


def build(builder, cache=None, **options):
    (engine,) = build_engines([(program(), built_by(builder, cache, **options))])
    return engine


class Rewritten(EngineBuilder):
    """Reference engines whose blobs' device_id is replaced (or removed, with None)."""

    name = "reference"

    def __init__(self, device_id: object) -> None:
        self.device_id = device_id

    def build(self, request: BuildRequest) -> bytes:
        blob = ReferenceBuilder().build(request)
        magic, at, size, engine_at, engine_size, *_ = HEADER.unpack_from(blob)
        document = json.loads(blob[at : at + size]) | {"device_id": self.device_id}
        if self.device_id is None:
            del document["device_id"]
        return pack(document, blob[engine_at : engine_at + engine_size], magic=magic)


# A value of each field of BuildOptions that is not its default.
CHANGED_OPTIONS = {
    "compute_capabilities": ("8.6",),
    "optimization_level": 3,
    "torch_tensorrt_settings": {"disable_tf32": True},
    "workspace_size": 1 << 20,
    "hardware_compatible": True,
    "refittable": True,
    "weight_streaming": True,
    "precision": "float16",
    "dla_core": 0,
    "dla_gpu_fallback": True,
    "debug_outputs": True,
}
