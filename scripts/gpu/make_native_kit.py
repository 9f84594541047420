"""Make a kit of engines for the native runtime.

    python scripts/gpu/make_native_kit.py KIT --name NAME [--fake]
    python scripts/gpu/make_native_kit.py KIT --name NAME --maker MAKE_ENGINE --library TENSORRT

The engines are this package's; with ``--fake``, of the tests' fake of that TensorRT, for the
rehearsal; with ``--maker``, made by TensorRT's own C++ API. Models that are to be timed are there a
second time, ``<model>.<name>_device.pte``, with inputs and outputs on the GPU, beside the engine
itself and the sizes of its tensors.
"""

from __future__ import annotations

import argparse
import json
import subprocess
from pathlib import Path

import torch
from described_engines import DescribedEngines
from kit_writer import export_model, write_kit, write_model
from native_models import NativeModel, native_models

from trt_et import TensorRTPartitioner
from trt_et.builders import EngineBuilder
from trt_et.engine_info import decode_blob
from trt_et.inspection import inspect_program


def main() -> None:
    """Write the kit."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("kit", type=Path)
    parser.add_argument("--maker", type=Path, help="the program make_engine")
    parser.add_argument("--library", type=Path, help="a TensorRT with a builder")
    parser.add_argument("--name", required=True, choices=["tensorrt", "tensorrt_rtx"])
    parser.add_argument("--fake", action="store_true", help="engines of the tests' fake")
    options = parser.parse_args()
    if options.maker and not options.library:
        parser.error("--maker opens a TensorRT: name it with --library")
    options.kit.mkdir(parents=True, exist_ok=True)
    builder: str | EngineBuilder = options.name
    if options.maker or options.fake:
        capability = _capability() if options.maker else None
        builder = DescribedEngines(options.maker, options.library, capability, options.name)
    kit = {}
    for name, case in native_models().items():
        _export(options.kit / f"{name}.{options.name}.pte", case, builder)
        if case.timed:
            program = options.kit / f"{name}.{options.name}_device.pte"
            _export(program, case, builder, on_device=True)
            _write_engine(options.kit / f"{name}.engine", program)
        kit[name] = write_model(options.kit, name, case.model, case.inputs)
    write_kit(options.kit, kit)


def _capability() -> str:
    """Of the first GPU. PyTorch is not asked: it may have been built without CUDA."""
    ask = ["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader", "--id=0"]
    return subprocess.run(ask, capture_output=True, text=True, check=True).stdout.strip()


def _export(
    path: Path, case: NativeModel, builder: str | EngineBuilder, *, on_device: bool = False
) -> None:
    partitioner = TensorRTPartitioner(builder=builder, excluded_ops=case.excluded_ops)
    export_model(
        case.model,
        case.inputs,
        partitioner,
        path,
        dynamic_shapes=case.dynamic_shapes,
        on_device=on_device,
    )


def _write_engine(path: Path, program: Path) -> None:
    """A program's only engine, and beside it the sizes of its tensors in bytes."""
    (delegate,) = inspect_program(program.read_bytes())[0].delegates
    blob = decode_blob(delegate.blob)
    path.write_bytes(blob.engine)
    # Elements of float32, as all of these engines' tensors are.
    sizes = {b.name: torch.Size(b.shape).numel() * 4 for b in blob.info.bindings}
    path.with_suffix(".tensors.json").write_text(json.dumps(sizes) + "\n")


if __name__ == "__main__":
    main()
