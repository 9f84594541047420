"""Lowering in one line, and reading what came out."""

from __future__ import annotations

from typing import Any

import torch
from executorch.exir import (
    ExecutorchBackendConfig,
    ExecutorchProgramManager,
    to_edge_transform_and_lower,
)
from torch import nn
from torch.export import Dim

from tests.support.models import make
from trt_et import TensorRTPartitioner
from trt_et.engine_program.make_program import make_engine_program
from trt_et.engine_program.program import unlift
from trt_et.engines import BuildOptions, BuildRequest
from trt_et.inspection import inspect_program


def reference(**options: Any) -> TensorRTPartitioner:
    return TensorRTPartitioner(builder="reference", **options)


def export(name: str) -> torch.export.ExportedProgram:
    model, inputs = make(name)
    return torch.export.export(model, inputs)


def finish(
    program: Any, *partitioners: Any, planning: Any = None, **options: Any
) -> ExecutorchProgramManager:
    """Lower a program; ``options`` are those of ``to_edge_transform_and_lower``."""
    manager = to_edge_transform_and_lower(program, partitioner=list(partitioners), **options)
    config = ExecutorchBackendConfig(memory_planning_pass=planning) if planning else None
    return manager.to_executorch(config)


def lower(program: torch.export.ExportedProgram, **options: Any) -> bytes:
    """The .pte of a program; a partitioner's options, or ``partitioner=`` itself."""
    options.setdefault("builder", "reference")
    partitioner = options.get("partitioner") or TensorRTPartitioner(**options)
    return bytes(finish(program, partitioner).buffer)


def lower_case(name: str, **options: Any) -> bytes:
    return lower(export(name), **options)


def blobs(pte: bytes) -> list[bytes]:
    return [delegate.blob for delegate in inspect_program(pte)[0].delegates]


def target_devices(pte: bytes) -> list[list[bytes]]:
    """The target_device specs of every delegate."""
    return [
        [value for key, value in delegate.compile_specs if key == "target_device"]
        for delegate in inspect_program(pte)[0].delegates
    ]


def delegate_tensor_devices(pte: bytes) -> list[set[str]]:
    """The devices of the arguments of every delegate call."""
    (method,) = inspect_program(pte)
    calls = [call for call in method.calls if call.kind == "delegate"]
    return [{method.values[index].device for index in call.args} for call in calls]


def planned_devices(pte: bytes) -> set[str]:
    (method,) = inspect_program(pte)
    return {use.device for use in method.devices if use.planned_bytes} - {"cpu"}


def export_with_batch(name: str, maximum: int = 8) -> torch.export.ExportedProgram:
    model, (x,) = make(name)
    x = torch.cat([x, x])
    return torch.export.export(model, (x,), dynamic_shapes=({0: Dim("batch", max=maximum)},))


def lowered(model: nn.Module, *inputs: torch.Tensor):
    program = torch.export.export(model.eval(), inputs).run_decompositions({})
    return make_engine_program(program, "test")


def request(model: nn.Module, *inputs: torch.Tensor) -> BuildRequest:
    return BuildRequest("test", lowered(model, *inputs), 0, BuildOptions())


def module_of(model: nn.Module, *inputs: torch.Tensor):
    return unlift(lowered(model, *inputs).exported)
