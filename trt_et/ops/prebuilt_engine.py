"""Define ``trt_et::prebuilt_engine``, a call of an engine that is a constant of the program."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

import torch
from torch._ops import OpOverload


def _results(
    inputs: list[torch.Tensor], engine: torch.Tensor, info: str, outputs: str
) -> list[torch.Tensor]:
    return [
        torch.empty(shape, dtype=getattr(torch, name), device="meta")
        for name, shape in json.loads(outputs)
    ]


# ``torch.library.custom_op`` and ``register_fake`` read their caller's source, which adds 0.1 s to
# every import.
torch.library.define(
    "trt_et::prebuilt_engine", "(Tensor[] inputs, Tensor engine, str info, str outputs) -> Tensor[]"
)
torch.library.impl("trt_et::prebuilt_engine", "Meta", _results)
PREBUILT_ENGINE: Final[OpOverload] = torch.ops.trt_et.prebuilt_engine.default
PREBUILT_NAME: Final = "trt_et::prebuilt_engine.default"


def is_prebuilt(target: object) -> bool:
    """Return whether an operator is an engine in the program."""
    return target is PREBUILT_ENGINE


@dataclass(frozen=True)
class PrebuiltEngine:
    """The description of an engine.

    Attributes:
        device_id: Index of its GPU; None if it is not readable.
        inputs: The names of its inputs, in the order of the call's tensors.
        outputs: The names of its outputs, in the order of the call's results.
        hardware_compatible: True if it runs on GPUs other than the one it was built on.
        serialized_metadata: A field of Torch-TensorRT.
        target_platform: Such as ``linux_x86_64``; empty if it is not known.
        builder: ``tensorrt`` or ``tensorrt_rtx``; empty: the installed Torch-TensorRT's builder.
        library_version: The TensorRT that built it; empty if it is not known.
        compute_capabilities: Its GPUs' compute capabilities; empty if they are not known.
    """

    device_id: int | None
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    hardware_compatible: bool
    serialized_metadata: str
    target_platform: str
    builder: str = ""
    library_version: str = ""
    compute_capabilities: tuple[str, ...] = ()

    def to_text(self) -> str:
        """Return the ``info`` argument of the operator."""
        return json.dumps(vars(self))

    @classmethod
    def from_text(cls, text: str) -> PrebuiltEngine:
        """Read the text of ``to_text``."""
        fields = json.loads(text)
        lists = ("inputs", "outputs", "compute_capabilities")
        return cls(**fields | {name: tuple(fields[name]) for name in lists})
