"""Refuses what flags of ``optimum-cli`` make that TensorRT cannot use."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch.export import ExportedProgram

from trt_et.errors import UnsupportedModelError

__all__ = ["check_device", "check_weights"]


def check_device(model: torch.nn.Module) -> None:
    """Check that a model is on the CPU, where builders read its weights.

    Raises:
        UnsupportedModelError: A weight is elsewhere.
    """
    for name, weight in model.named_parameters():
        if weight.device.type != "cpu":
            raise UnsupportedModelError(
                f"the weight {name} is on {weight.device}; expected all weights on the CPU. Leave "
                "out --device, and --qlinear_packing_format, which needs it: TRT_ET_DEVICE or the "
                "option device names the GPU of the engines"
            )


def check_weights(programs: Mapping[str, ExportedProgram]) -> None:
    """Check that no weights are packed for the kernels of another backend.

    Raises:
        UnsupportedModelError: A matrix product takes packed weights.
    """
    for method, program in programs.items():
        for node in program.graph.nodes:
            if node.target is torch.ops.aten._weight_int4pack_mm.default:
                flag = "--qlinear_encoder" if "encoder" in method else "--qlinear"
                raise UnsupportedModelError(
                    f"method {method!r}: the weights of {node.name} are packed for CUDA's kernels "
                    f"(tile_packed_to_4d). Leave out {flag}_packing_format; {flag} 4w stays"
                )
