"""Make what ``scripts/gpu_check`` takes to a machine with a GPU: programs, inputs, eager's outputs.

    python scripts/gpu/make_kit.py build/gpu_kit

Every model is there twice: with TensorRT-RTX engines, built here without a GPU, and with reference
engines, for the rehearsal on simulated GPUs.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from executorch.exir import ExecutorchBackendConfig, to_edge_transform_and_lower

from tests.models import make
from trt_et import TensorRTMemoryPlanningPass, TensorRTPartitioner

MODELS = ("mlp", "cnn", "vit", "channels_last", "outputs", "order", "cached")


def main(folder: Path) -> None:
    """Write the kit."""
    folder.mkdir(parents=True, exist_ok=True)
    kit = {name: _write_model(folder, name) for name in MODELS}
    (folder / "kit.json").write_text(json.dumps(kit, indent=2) + "\n")


def _write_model(folder: Path, name: str) -> dict[str, object]:
    model, inputs = make(name)
    with torch.no_grad():
        outputs = model(*inputs)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        for builder in ("tensorrt_rtx", "reference"):
            manager = to_edge_transform_and_lower(
                torch.export.export(model, inputs),
                partitioner=[TensorRTPartitioner(builder=builder)],
            )
            config = ExecutorchBackendConfig(memory_planning_pass=TensorRTMemoryPlanningPass())
            with (folder / f"{name}.{builder}.pte").open("wb") as file:
                manager.to_executorch(config).write_to_file(file)
    return {
        "inputs": [_write(folder / f"{name}.in{i}.bin", t) for i, t in enumerate(inputs)],
        "outputs": [_write(folder / f"{name}.out{i}.bin", t) for i, t in enumerate(outputs)],
    }


def _write(path: Path, tensor: torch.Tensor) -> dict[str, object]:
    """Raw bytes in memory order, as executor_runner reads and writes them."""
    order = sorted(range(tensor.dim()), key=lambda dim: -tensor.stride(dim))
    dense = tensor.detach().permute(order).contiguous()
    path.write_bytes(dense.flatten().view(torch.uint8).numpy().tobytes() if dense.numel() else b"")
    return {
        "file": path.name,
        "dtype": str(tensor.dtype).removeprefix("torch."),
        "shape": list(tensor.shape),
        "order": order,
    }


if __name__ == "__main__":
    main(Path(sys.argv[1]))
