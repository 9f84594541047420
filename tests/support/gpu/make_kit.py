"""Make a kit: programs with engines, their inputs and eager's outputs, for tests/gpu.

    python -m tests.support.gpu.make_kit KIT models|operators
    python -m tests.support.gpu.make_kit KIT tensorrt|tensorrt_rtx [--fake]
    python -m tests.support.gpu.make_kit KIT tensorrt|tensorrt_rtx --maker PROGRAM --library FILE

``models`` exports the tests' models with TensorRT-RTX engines, with ONNX networks and, for a
rehearsal, with reference engines; ``operators`` exports small networks. The others export the
models of ``native_models``: with this package's builder, with the tests' fake, or with TensorRT's
C++ API on the GPU. Timed models have a second program, ``<model>.<name>_device.pte``, with inputs
and outputs on the GPU, the bare engine, and the sizes of its tensors.
"""

from __future__ import annotations

import argparse
import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from executorch.exir import ExecutorchBackendConfig, to_edge_transform_and_lower
from executorch.exir.backend.partitioner import Partitioner
from executorch.exir.passes.propagate_device_config import PropagateDeviceConfig

from tests.support.gpu.described_engines import DescribedEngines
from tests.support.gpu.kit import MODELS, NETWORKS, write_model
from tests.support.gpu.native_models import native_models
from tests.support.gpu.operators import operator_names, write_operators
from tests.support.models import make
from trt_et import TensorRTMemoryPlanningPass, TensorRTPartitioner
from trt_et.engine_info import decode_blob
from trt_et.engines import EngineBuilder
from trt_et.inspection import inspect_program

BUILDERS = ("tensorrt_rtx", "onnx", "reference")


def export_model(
    model: torch.nn.Module,
    inputs: tuple[torch.Tensor, ...],
    partitioners: list[Partitioner],
    path: Path,
    *,
    dynamic_shapes: tuple[Any, ...] | None = None,
    where: str = "planned",
) -> None:
    """Write a program: ``planned`` on the GPU, on the ``host``, or with its I/O ``on_device``."""
    planned, on_device = where == "planned", where == "on_device"
    with torch.no_grad():
        exported = torch.export.export(model.eval(), inputs, dynamic_shapes=dynamic_shapes)
        manager = to_edge_transform_and_lower(exported, partitioner=partitioners)
        config = ExecutorchBackendConfig(
            enable_non_cpu_memory_planning=where != "host",
            memory_planning_pass=TensorRTMemoryPlanningPass(
                alloc_graph_input=planned, alloc_graph_output=planned
            ),
            propagate_device_config=PropagateDeviceConfig(
                skip_h2d_for_method_inputs=on_device, skip_d2h_for_method_outputs=on_device
            ),
        )
        with path.open("wb") as file:
            manager.to_executorch(config).write_to_file(file)


def make_models(
    folder: Path, builders: tuple[str, ...] = BUILDERS, names: tuple[str, ...] = MODELS
) -> None:
    """Write the tests' models with engines or networks of each builder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        for builder in builders:
            if builder == "onnx" and name not in NETWORKS:
                continue
            # A model may change its buffers when it runs, so each use gets a new one.
            model, inputs = make(name)
            partitioners = [TensorRTPartitioner(builder=builder)]
            export_model(model, inputs, partitioners, folder / f"{name}.{builder}.pte")
        model, inputs = make(name)
        write_model(folder, name, model, inputs)


def make_engines(folder: Path, name: str, builder: str | EngineBuilder, depth: int = 60) -> None:
    """Write the native models with engines of one builder."""
    folder.mkdir(parents=True, exist_ok=True)
    for model, case in native_models(depth).items():
        for on_device in (False, True) if case.timed else (False,):
            path = folder / f"{model}.{name}{'_device' * on_device}.pte"
            partitioner = TensorRTPartitioner(builder=builder, excluded_ops=case.excluded_ops)
            export_model(
                case.model,
                case.inputs,
                [partitioner],
                path,
                dynamic_shapes=case.dynamic_shapes,
                where="on_device" if on_device else "planned",
            )
            if on_device:
                _write_engine(folder / f"{model}.engine", path)
        write_model(folder, model, case.model, case.inputs)


def make_operators(
    folder: Path, builder: str = "tensorrt_rtx", chosen: Sequence[str] | None = None
) -> None:
    """Write the networks of ``operators``, or the chosen ones, with engines of a builder."""

    def export(
        module: torch.nn.Module, inputs: tuple[torch.Tensor, ...], path: Path, sizes: Any
    ) -> None:
        partitioners = [TensorRTPartitioner(builder=builder)]
        export_model(module, inputs, partitioners, path, dynamic_shapes=sizes)

    write_operators(folder, builder, operator_names() if chosen is None else chosen, export)


def _write_engine(path: Path, program: Path) -> None:
    """Write a program's only engine, and the sizes of its tensors in bytes."""
    (delegate,) = inspect_program(program.read_bytes())[0].delegates
    blob = decode_blob(delegate.blob)
    path.write_bytes(blob.engine)
    # All tensors of these engines are float32.
    sizes = {b.name: torch.Size(b.shape).numel() * 4 for b in blob.info.bindings}
    path.with_suffix(".tensors.json").write_text(json.dumps(sizes) + "\n")


def main() -> None:
    """Write the kit that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("kit", type=Path)
    parser.add_argument("what", choices=["models", "operators", "tensorrt", "tensorrt_rtx"])
    parser.add_argument("--fake", action="store_true", help="engines of the tests' fake")
    parser.add_argument("--maker", type=Path, help="the program make_engine")
    parser.add_argument("--library", type=Path, help="a TensorRT with a builder")
    options = parser.parse_args()
    if options.what == "models":
        make_models(options.kit)
        return
    if options.what == "operators":
        make_operators(options.kit)
        return
    builder: str | EngineBuilder = options.what
    if options.maker or options.fake:
        capability = None
        if options.maker:
            # PyTorch may have been built without CUDA.
            ask = ["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader", "--id=0"]
            done = subprocess.run(ask, capture_output=True, text=True, check=True)
            capability = done.stdout.strip()
        builder = DescribedEngines(options.maker, options.library, capability, options.what)
    make_engines(options.kit, options.what, builder)


if __name__ == "__main__":
    main()
