"""Define ``trt_et::prebuilt_engine``, a call of an engine that is a constant of the program."""

from __future__ import annotations

import json
from typing import Final

import torch
from torch._ops import OpOverload

from trt_et.blob.metadata import info_from, metadata_of
from trt_et.blob.model import EngineInfo


def _results(inputs: list[torch.Tensor], engine: torch.Tensor, info: str) -> list[torch.Tensor]:
    return [
        torch.empty(output.shape, dtype=getattr(torch, output.dtype), device="meta")
        for output in info_of(info).outputs
    ]


# ``torch.library.custom_op`` and ``register_fake`` read their caller's source, which adds 0.1 s to
# every import.
torch.library.define(
    "trt_et::prebuilt_engine", "(Tensor[] inputs, Tensor engine, str info) -> Tensor[]"
)
torch.library.impl("trt_et::prebuilt_engine", "Meta", _results)
PREBUILT_ENGINE: Final[OpOverload] = torch.ops.trt_et.prebuilt_engine.default
PREBUILT_NAME: Final = "trt_et::prebuilt_engine.default"


def is_prebuilt(target: object) -> bool:
    """Return whether an operator is an engine in the program."""
    return target is PREBUILT_ENGINE


def info_text(info: EngineInfo) -> str:
    """Return the ``info`` argument of the operator.

    The engine's inputs and outputs are in the order of the call's tensors and results. The inputs
    need no dtypes and shapes.

    Raises:
        BlobError: A blob cannot hold such an engine: the device id is no index, for example.
    """
    text = json.dumps(metadata_of(info))
    info_of(text)
    return text


def info_of(text: str) -> EngineInfo:
    """Read the text of ``info_text``."""
    return info_from(json.loads(text))
