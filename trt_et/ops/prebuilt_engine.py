"""``trt_et::prebuilt_engine``: a call of an engine that the program brings along as a constant."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

import torch
from torch._ops import OpOverload

__all__ = ["PREBUILT_ENGINE", "PREBUILT_NAME", "PrebuiltEngine", "is_prebuilt"]


def _results(
    inputs: list[torch.Tensor], engine: torch.Tensor, info: str, outputs: str
) -> list[torch.Tensor]:
    return [
        torch.empty(shape, dtype=getattr(torch, name), device="meta")
        for name, shape in json.loads(outputs)
    ]


# ``torch.library.custom_op`` and ``register_fake`` look for their caller's source, which takes a
# tenth of a second of every import.
torch.library.define(
    "trt_et::prebuilt_engine", "(Tensor[] inputs, Tensor engine, str info, str outputs) -> Tensor[]"
)
torch.library.impl("trt_et::prebuilt_engine", "Meta", _results)
PREBUILT_ENGINE: Final[OpOverload] = torch.ops.trt_et.prebuilt_engine.default
PREBUILT_NAME: Final = "trt_et::prebuilt_engine.default"


def is_prebuilt(target: object) -> bool:
    """Whether an operator is an engine that the program holds."""
    return target is PREBUILT_ENGINE


@dataclass(frozen=True)
class PrebuiltEngine:
    """Torch-TensorRT's description of an engine.

    Attributes:
        device_id: Index of the GPU that it is for; None where that is not readable.
        inputs: The names of its inputs, in the order of the call's tensors.
        outputs: The names of its outputs, in the order of the call's results.
        hardware_compatible: Whether it runs on other GPUs than the one that it was built on.
        serialized_metadata: Torch-TensorRT's own.
        target_platform: Such as ``linux_x86_64``.
    """

    device_id: int | None
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    hardware_compatible: bool
    serialized_metadata: str
    target_platform: str

    def to_text(self) -> str:
        """The ``info`` argument of the operator."""
        return json.dumps(vars(self))

    @classmethod
    def from_text(cls, text: str) -> PrebuiltEngine:
        """What :meth:`to_text` wrote."""
        fields = json.loads(text)
        return cls(**fields | {k: tuple(fields[k]) for k in ("inputs", "outputs")})
