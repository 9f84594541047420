"""A kit: programs, their inputs and eager's outputs, as files for a machine with a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

MODELS = ("mlp", "cnn", "vit", "channels_last", "outputs", "order", "cached")
NETWORKS = ("mlp", "cnn", "cached")  # Of the models; a machine builds their engines.


@dataclass(frozen=True)
class Model:
    """One model of a kit."""

    name: str
    program: Path
    inputs: list[torch.Tensor]
    expected: list[torch.Tensor]  # What eager returned.
    files: list[Path]  # The inputs' files, as executor_runner takes them.


def write_model(
    folder: Path, name: str, model: torch.nn.Module, inputs: Sequence[torch.Tensor]
) -> None:
    """Write inputs and eager's outputs; programs beside them are ``NAME.BUILDER.pte``."""
    import numpy as np

    with torch.no_grad():
        outputs = model.eval()(*inputs)
    outputs = list(outputs) if isinstance(outputs, tuple) else [outputs]
    torch.save((list(inputs), outputs), folder / f"{name}.pt")
    for index, tensor in enumerate(inputs):
        np.save(folder / f"{name}.in{index}.npy", tensor.numpy().copy(order="C"))


def read_kit(folder: Path, builder: str) -> list[Model]:
    """Return the models, with the engines of a builder."""
    models = []
    for path in sorted(folder.glob("*.pt")):
        inputs, expected = torch.load(path)
        files = [folder / f"{path.stem}.in{index}.npy" for index in range(len(inputs))]
        program = folder / f"{path.stem}.{builder}.pte"
        models.append(Model(path.stem, program, inputs, expected, files))
    return models


def read_output(path: Path, like: torch.Tensor) -> torch.Tensor:
    """Return what executor_runner wrote for an output: bytes in the memory order of eager's."""
    flat = torch.frombuffer(bytearray(path.read_bytes()), dtype=like.dtype)
    return torch.as_strided(flat, like.shape, like.stride())


def compare(
    found: list[torch.Tensor], expected: list[torch.Tensor], tolerance: float = 5e-3
) -> dict[str, Any]:
    """Return how far outputs are from eager's, also as a share of the largest value."""
    if len(found) != len(expected):
        return {"ok": False, "why": f"{len(found)} outputs, expected {len(expected)}"}
    worst, relative = 0.0, 0.0
    for have, want in zip(found, expected, strict=True):
        if have.shape != want.shape or have.dtype != want.dtype:
            return {"ok": False, "why": f"{have.dtype} {have.shape}: not {want.dtype} {want.shape}"}
        if have.numel():
            # Where both are the same infinity or no number, they do not differ.
            same = (have == want) | ((have != have) & (want != want))
            difference = _largest((have.double() - want.double())[~same])
            worst = max(worst, difference)
            scale = _largest(want[want.isfinite()].double())
            relative = max(relative, difference / max(scale, 1e-12))
    # TensorRT may use TF32 on tensor cores: 10 bits of mantissa.
    return {"ok": relative < tolerance, "largest_difference": worst, "relative": relative}


def _largest(values: torch.Tensor) -> float:
    return float(values.abs().max()) if values.numel() else 0.0
