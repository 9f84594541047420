"""Lowering in one line, and reading what came out with ExecuTorch's own deserializer."""

from __future__ import annotations

from typing import Any

import torch
from executorch.exir import to_edge_transform_and_lower
from executorch.exir.schema import Tensor
from torch import nn
from torch.export import Dim

from tests.support.models import make
from trt_et import TensorRTPartitioner
from trt_et.engines import BuildOptions, BuildRequest
from trt_et.inspection import inspect_program
from trt_et.lowering.lower import lower_partition
from trt_et.lowering.lowered_partition import unlift


def reference(**options: Any) -> TensorRTPartitioner:
    """A partitioner whose engines run on simulated GPUs."""
    return TensorRTPartitioner(builder="reference", **options)


def export(name: str) -> torch.export.ExportedProgram:
    model, inputs = make(name)
    return torch.export.export(model, inputs)


def lower(program: torch.export.ExportedProgram, **options: Any) -> bytes:
    """The .pte of a program; a partitioner's options, or ``partitioner=`` itself."""
    options.setdefault("builder", "reference")
    partitioner = options.get("partitioner") or TensorRTPartitioner(**options)
    manager = to_edge_transform_and_lower(program, partitioner=[partitioner])
    return bytes(manager.to_executorch().buffer)


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


def delegate_tensor_devices(pte: bytes) -> list[set[tuple[str, int]]]:
    """The devices that ``extra_tensor_info`` gives the arguments of every delegate call."""
    from executorch.exir._serialize._program import deserialize_pte_binary

    plan = deserialize_pte_binary(pte).program.execution_plan[0]
    found: list[set[tuple[str, int]]] = []
    for chain in plan.chains:
        for instruction in chain.instructions:
            call = instruction.instr_args
            if type(call).__name__ != "DelegateCall":
                continue
            devices = set()
            for index in call.args:
                value = plan.values[index].val
                assert isinstance(value, Tensor)
                info = value.extra_tensor_info
                devices.add((info.device_type.name, info.device_index) if info else ("CPU", 0))
            found.append(devices)
    return found


def planned_devices(pte: bytes) -> set[tuple[str, int]]:
    """The devices in ``non_const_buffer_device``."""
    from executorch.exir._serialize._program import deserialize_pte_binary

    plan = deserialize_pte_binary(pte).program.execution_plan[0]
    return {
        (entry.device_type.name, entry.device_index) for entry in plan.non_const_buffer_device or ()
    }


def export_with_batch(name: str, maximum: int = 8) -> torch.export.ExportedProgram:
    model, (x,) = make(name)
    x = torch.cat([x, x])
    return torch.export.export(model, (x,), dynamic_shapes=({0: Dim("batch", max=maximum)},))


def lowered(model: nn.Module, *inputs: torch.Tensor):
    program = torch.export.export(model.eval(), inputs).run_decompositions({})
    return lower_partition(program, "test")


def request(model: nn.Module, *inputs: torch.Tensor) -> BuildRequest:
    return BuildRequest("test", lowered(model, *inputs), 0, BuildOptions())


def module_of(model: nn.Module, *inputs: torch.Tensor):
    program = torch.export.export(model.eval(), inputs).run_decompositions({})
    return unlift(lower_partition(program, "test").program)
