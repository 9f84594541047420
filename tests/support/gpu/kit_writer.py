"""Writes a kit, which ``kit`` reads: files that can be carried to a machine with a GPU."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from executorch.exir import ExecutorchBackendConfig, to_edge_transform_and_lower
from executorch.exir.passes.propagate_device_config import PropagateDeviceConfig

from tests.support.gpu.kit import INDEX
from trt_et import TensorRTMemoryPlanningPass, TensorRTPartitioner

__all__ = ["export_model", "write_kit", "write_model"]


def export_model(
    model: torch.nn.Module,
    inputs: tuple[torch.Tensor, ...],
    partitioner: TensorRTPartitioner,
    path: Path,
    *,
    dynamic_shapes: tuple[Any, ...] | None = None,
    on_device: bool = False,
) -> None:
    """Write a program; with ``on_device`` its own inputs and outputs are on the GPU, too."""
    with torch.no_grad():
        exported = torch.export.export(model.eval(), inputs, dynamic_shapes=dynamic_shapes)
        manager = to_edge_transform_and_lower(exported, partitioner=[partitioner])
        config = ExecutorchBackendConfig(
            memory_planning_pass=TensorRTMemoryPlanningPass(
                alloc_graph_input=not on_device, alloc_graph_output=not on_device
            ),
            propagate_device_config=PropagateDeviceConfig(
                skip_h2d_for_method_inputs=on_device, skip_d2h_for_method_outputs=on_device
            ),
        )
        with path.open("wb") as file:
            manager.to_executorch(config).write_to_file(file)


def write_model(
    folder: Path, name: str, model: torch.nn.Module, inputs: Sequence[torch.Tensor]
) -> dict[str, object]:
    """Write inputs and eager's outputs; returns what the index says of them."""
    with torch.no_grad():
        outputs = model.eval()(*inputs)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    return {
        "inputs": [_write(folder / f"{name}.in{i}.bin", t) for i, t in enumerate(inputs)],
        "outputs": [_write(folder / f"{name}.out{i}.bin", t) for i, t in enumerate(outputs)],
    }


def write_kit(folder: Path, models: Mapping[str, object]) -> None:
    """Write the index; the programs are named ``<model>.<builder>.pte``."""
    (folder / INDEX).write_text(json.dumps(models, indent=2) + "\n")


def _write(path: Path, tensor: torch.Tensor) -> dict[str, object]:
    """Raw bytes in memory order, as executor_runner reads and writes them."""
    order = sorted(range(tensor.dim()), key=lambda dim: tensor.stride()[dim], reverse=True)
    dense = tensor.detach().permute(order).contiguous()
    path.write_bytes(dense.flatten().view(torch.uint8).numpy().tobytes() if dense.numel() else b"")
    return {
        "file": path.name,
        "dtype": str(tensor.dtype).removeprefix("torch."),
        "shape": list(tensor.shape),
        "order": order,
    }
