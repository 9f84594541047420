"""The programs that the run-time tests run, with inputs and eager outputs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from executorch.exir import ExecutorchBackendConfig, to_edge_transform_and_lower
from executorch.exir.backend.compile_spec_schema import CompileSpec
from executorch.exir.passes import MemoryPlanningPass

from tests.support.models import Function
from trt_et import TensorRTPartitioner
from trt_et.engine_info import EngineInfo, encode_blob
from trt_et.engines import EngineBuilder


@dataclass
class Program:
    path: Path
    inputs: list[torch.Tensor]
    outputs: list[torch.Tensor]

    def input_files(self) -> list[Path]:
        files = []
        for index, tensor in enumerate(self.inputs):
            files.append(self.path.with_suffix(f".in{index}"))
            files[-1].write_bytes(bytes(tensor.contiguous().flatten().view(torch.uint8).tolist()))
        return files


class Mlp(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(8, 16)
        self.second = torch.nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.relu(self.first(x)))


def two_engines() -> torch.nn.Module:
    """An operator that stays on the CPU splits the engines."""
    layers = torch.nn.Linear(8, 8), Function(torch.sinh), torch.nn.Linear(8, 4)
    return torch.nn.Sequential(*layers)


class Many(torch.nn.Module):
    """Several inputs and outputs, one of them without dimensions."""

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return a + b, a * 2.0, (a * b).sum()


class ForeignBuilder(EngineBuilder):
    """Returns what says that it is an engine of TensorRT-RTX, or of TensorRT."""

    def __init__(self, name: str = "tensorrt_rtx", version: str = "1.5.0.114") -> None:
        self.name, self.version = name, version

    def build(self, request: Any) -> bytes:
        facts = request.program.bindings, request.device_id, self.name, self.version
        return encode_blob(b"ftrt" * 64, EngineInfo(*facts))


def export(
    folder: Path,
    name: str,
    module: torch.nn.Module,
    inputs: tuple[torch.Tensor, ...],
    *,
    host: bool = False,
    host_planned: bool = False,
    dynamic: Any = None,
    builder: Any = "reference",
    run: tuple[torch.Tensor, ...] | None = None,
    etrecord: Path | None = None,
    **options: Any,
) -> Program:
    # A delegate's tensors on the host, in label and in plan; the engine still is on a GPU.
    specs = [CompileSpec("target_device", b"cpu")] if host else []
    exported = torch.export.export(module.eval(), inputs, dynamic_shapes=dynamic)
    manager = to_edge_transform_and_lower(
        exported,
        partitioner=[TensorRTPartitioner(specs, builder=builder, **options)],
        generate_etrecord=etrecord is not None,
    )
    # With the GPU's label and host memory, ExecuTorch copies no input into planned memory, and its
    # Python runtime returns no output without a CUDA build of torch: that is for executor_runner.
    config = ExecutorchBackendConfig(
        enable_non_cpu_memory_planning=not (host or host_planned),
        memory_planning_pass=MemoryPlanningPass(alloc_graph_input=not host_planned),
    )
    path = folder / f"{name}.pte"
    program = manager.to_executorch(config)
    path.write_bytes(program.buffer)
    if etrecord is not None:
        program.get_etrecord().save(etrecord)
    with torch.no_grad():
        outputs = module(*(run or inputs))
    return Program(path, list(run or inputs), [outputs] if torch.is_tensor(outputs) else [*outputs])


class Programs(dict[str, Program]):
    """Programs by name; each is exported when it is asked for first."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        torch.manual_seed(0)
        x, image = torch.randn(2, 8), torch.randn(1, 3, 6, 6).to(memory_format=torch.channels_last)
        mlp, batch = (Mlp(), (x,)), ({0: torch.export.Dim("batch", min=0, max=8)},)
        two = (two_engines(), (x,))
        conv = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3, padding=1), torch.nn.ReLU())
        split = {
            "excluded_ops": (torch.ops.aten.sinh,),
            "device": lambda partition: f"cuda:{partition.index}",
        }
        dynamic = {"dynamic": batch, "run": (torch.randn(5, 8),)}
        self.folder = folder
        self.cases: dict[str, tuple[Any, dict[str, Any]]] = {
            "mlp": (mlp, {}),
            "mlp_on_1": (mlp, {"device": "cuda:1"}),
            "mlp_on_3": (mlp, {"device": "cuda:3"}),
            "host": (mlp, {"host": True}),
            "planned_on_host": (mlp, {"host_planned": True}),
            "two": (two, split),
            "two_host": (two, {"host": True, **split}),
            "many": ((Many(), (torch.randn(3, 4), torch.randn(3, 4))), {}),
            "dynamic": (mlp, dynamic),
            "dynamic_host": (mlp, {"host": True, **dynamic}),
            "channels_last": ((conv, (image,)), {}),
            "foreign": (mlp, {"builder": ForeignBuilder()}),
        }

    def __missing__(self, name: str) -> Program:
        (module, inputs), options = self.cases[name]
        self[name] = export(self.folder, name, module, inputs, **options)
        return self[name]
