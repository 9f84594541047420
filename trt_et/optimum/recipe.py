"""Exports the models of ``optimum-executorch`` with TensorRT."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final

import torch
from executorch.exir import (
    ExecutorchBackendConfig,
    ExecutorchProgramManager,
    to_edge_transform_and_lower,
)
from torch.export import ExportedProgram

from trt_et.errors import UnsupportedModelError
from trt_et.memory.planning import TensorRTMemoryPlanningPass
from trt_et.optimum.lengths import bound_lengths
from trt_et.partitioner import TensorRTPartitioner

_VARIABLES: Final = {
    "builder": "TRT_ET_BUILDER",
    "device": "TRT_ET_DEVICE",
    "precision": "TRT_ET_PRECISION",
}


def export_with_tensorrt(
    model: Any,  # noqa: ANN401
    **options: Any,  # noqa: ANN401
) -> dict[str, ExecutorchProgramManager]:
    """Export one of optimum's exportable modules, with its cache on the GPU.

    Args:
        model: A module whose ``export()`` returns exported programs by method, and whose
            ``metadata`` are the constant methods.
        options: Options of ``trt_et.TensorRTPartitioner``, which ``from_pretrained`` takes as
            ``recipe_kwargs``. They override ``TRT_ET_BUILDER``, ``TRT_ET_DEVICE`` and
            ``TRT_ET_PRECISION``.

    Raises:
        OptionError: An option is unknown, or has an impossible value.
        UnsupportedModelError: Weights are on a GPU, or packed for CUDA's kernels.
    """
    partitioner = TensorRTPartitioner(**{**_options_from_environment(), **options})
    _check_device(model.model)
    programs = model.export()
    if len(programs) == 1:
        programs = {"forward": next(iter(programs.values()))}
    _check_weights(programs)
    bound_lengths(programs.values(), model.model)
    manager = to_edge_transform_and_lower(
        programs, partitioner=[partitioner], constant_methods=model.metadata
    )
    config = ExecutorchBackendConfig(memory_planning_pass=TensorRTMemoryPlanningPass())
    return {"model": manager.to_executorch(config)}


def _options_from_environment() -> dict[str, str | int]:
    """Return the options that environment variables set."""
    given = {option: os.environ.get(name, "").strip() for option, name in _VARIABLES.items()}
    # Like the load option, the device may be a number.
    return {
        option: int(value) if value.isdecimal() else value
        for option, value in given.items()
        if value
    }


def _check_device(model: torch.nn.Module) -> None:
    """Check that a model is on the CPU: builders read its weights there."""
    for name, weight in model.named_parameters():
        if weight.device.type != "cpu":
            raise UnsupportedModelError(
                f"the weight {name} is on {weight.device}; expected all weights on the CPU. Leave "
                "out --device, and --qlinear_packing_format, which needs it: TRT_ET_DEVICE or the "
                "option device names the GPU of the engines"
            )


def _check_weights(programs: Mapping[str, ExportedProgram]) -> None:
    """Check that no weights are packed for the kernels of another backend."""
    for method, program in programs.items():
        for node in program.graph.nodes:
            if node.target is torch.ops.aten._weight_int4pack_mm.default:
                flag = "--qlinear_encoder" if "encoder" in method else "--qlinear"
                raise UnsupportedModelError(
                    f"method {method!r}: the weights of {node.name} are packed for CUDA's kernels "
                    f"(tile_packed_to_4d). Leave out {flag}_packing_format; {flag} 4w stays"
                )
