"""Make a kit of engines for the native runtime, on the machine with the GPU.

    python scripts/gpu/make_native_kit.py KIT [--maker MAKE_ENGINE --library TENSORRT --name NAME]

Without ``--maker``, engines of the tests' fake of TensorRT, for the rehearsal. Models that are to
be timed are there a second time, ``<model>.<name>_device.pte``, with inputs and outputs on the
GPU, beside the engine itself and the sizes of its tensors.
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
from trt_et.engine_info import decode_blob
from trt_et.inspection import inspect_program


def main() -> None:
    """Write the kit."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("kit", type=Path)
    parser.add_argument("--maker", type=Path, help="the program make_engine")
    parser.add_argument("--library", type=Path, help="a TensorRT with a builder")
    parser.add_argument("--name", default="tensorrt", help="tensorrt or tensorrt_rtx")
    options = parser.parse_args()
    if options.maker and not options.library:
        parser.error("--maker opens a TensorRT: name it with --library")
    options.kit.mkdir(parents=True, exist_ok=True)
    capability = _capability() if options.maker else None
    builder = DescribedEngines(options.maker, options.library, capability, options.name)
    kit = {}
    for name, case in native_models().items():
        _export(options.kit / f"{name}.{options.name}.pte", case, builder)
        if case.timed:
            _write_timed(options.kit, name, case, builder)
        kit[name] = write_model(options.kit, name, case.model, case.inputs)
    write_kit(options.kit, kit)


def _capability() -> str:
    """Of the first GPU. PyTorch is not asked: it may have been built without CUDA."""
    ask = ["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader", "--id=0"]
    return subprocess.run(ask, capture_output=True, text=True, check=True).stdout.strip()


def _export(
    path: Path, case: NativeModel, builder: DescribedEngines, *, on_device: bool = False
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


def _write_timed(folder: Path, name: str, case: NativeModel, builder: DescribedEngines) -> None:
    program = folder / f"{name}.{builder.name}_device.pte"
    _export(program, case, builder, on_device=True)
    (delegate,) = inspect_program(program.read_bytes())[0].delegates
    blob = decode_blob(delegate.blob)
    (folder / f"{name}.engine").write_bytes(blob.engine)
    # Elements of float32, as all of these engines' tensors are.
    sizes = {b.name: torch.Size(b.shape).numel() * 4 for b in blob.info.bindings}
    (folder / f"{name}.tensors.json").write_text(json.dumps(sizes) + "\n")


if __name__ == "__main__":
    main()
