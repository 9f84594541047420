"""From ``MODULE:CALLABLE`` to a ``.pte``."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

import torch
from executorch.exir import ExecutorchBackendConfig, to_edge_transform_and_lower

from trt_et.errors import RunError
from trt_et.memory_planning import TensorRTMemoryPlanningPass
from trt_et.partitioner import TensorRTPartitioner
from trt_et.tools.eager import load_model

__all__ = ["explain_model", "export_model", "export_module"]


def explain_model(name: str, partitioner: TensorRTPartitioner) -> dict[str, Any]:
    """What lowering the model would do; nothing is built."""
    return _facts(partitioner.explain(_export(name)))


def export_model(name: str, partitioner: TensorRTPartitioner, output: Path) -> dict[str, Any]:
    """Lower the model and write it.

    Raises:
        RunError: ``torch.export`` refuses the model, or the file cannot be written.
        TrtEtError: An engine cannot be built.
    """
    if not output.parent.is_dir():  # Said before minutes go into building engines.
        raise RunError(f"{output} cannot be written: there is no folder {output.parent}")
    manager = to_edge_transform_and_lower(_export(name), partitioner=[partitioner])
    config = ExecutorchBackendConfig(memory_planning_pass=TensorRTMemoryPlanningPass())
    program = manager.to_executorch(config)
    unfinished = output.with_name(f"{output.name}.{secrets.token_hex(4)}.part")
    try:
        with unfinished.open("xb") as file:
            program.write_to_file(file)
        unfinished.replace(output)
    except OSError as error:
        raise RunError(f"{output} cannot be written: {error}") from error
    finally:
        unfinished.unlink(missing_ok=True)
    return {**_facts(partitioner.report), "bytes": output.stat().st_size, "file": str(output)}


def export_module(
    name: str,
    module: torch.nn.Module,
    inputs: tuple[Any, ...],
    dynamic_shapes: Any,  # noqa: ANN401
) -> torch.export.ExportedProgram:
    """``torch.export``, with its refusal in one line.

    Args:
        name: What the message calls the model.
        module: The model.
        inputs: Its example inputs.
        dynamic_shapes: As ``torch.export`` takes them; None: none.

    Raises:
        RunError: It cannot be exported.
    """
    try:
        return torch.export.export(module, inputs, dynamic_shapes=dynamic_shapes)
    except Exception as error:  # torch.export raises many types for what it cannot trace.
        first = str(error).strip().splitlines()[0] if str(error).strip() else ""
        raise RunError(f"torch.export refuses {name}: {type(error).__name__}: {first}") from error


def _export(name: str) -> torch.export.ExportedProgram:
    return export_module(name, *load_model(name))


def _facts(report: Any) -> dict[str, Any]:  # noqa: ANN401
    return {"engines": len(report.partitions), "lines": str(report).splitlines()}
