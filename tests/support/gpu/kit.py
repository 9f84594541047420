"""A kit: programs, their inputs and eager's outputs, as files for a machine with a GPU."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

MODELS = ("mlp", "cnn", "vit", "channels_last", "outputs", "order", "cached")
# TensorRT may sum in another order, and in float32 with TF32: 10 bits of mantissa, as float16 has.
TOLERANCES = {torch.float32: 3e-3, torch.float16: 5e-3}
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
    found: list[torch.Tensor], expected: list[torch.Tensor], tolerance: float | None = None
) -> dict[str, Any]:
    """Compare outputs with eager's, each by the norm of its difference over its own norm.

    Args:
        found: In the order of ``expected``.
        expected: Eager's.
        tolerance: The largest relative difference of an output; by default its dtype's of
            ``TOLERANCES``. Integers and booleans must be equal.

    Returns:
        ``ok``; ``why`` not, or ``largest_difference`` and ``relative``, the worst output's.
    """
    if len(found) != len(expected):
        return {"ok": False, "why": f"{len(found)} outputs, expected {len(expected)}"}
    good, worst, relative = True, 0.0, 0.0
    for have, want in zip(found, expected, strict=True):
        if have.shape != want.shape or have.dtype != want.dtype:
            return {"ok": False, "why": f"{have.dtype} {have.shape}: not {want.dtype} {want.shape}"}
        # Where both are the same infinity or no number, they do not differ.
        same = (have == want) | ((have != have) & (want != want))
        differences = (have.double() - want.double())[~same]
        scale = max(float(want[want.isfinite()].double().norm()), 1e-12)
        own = float(differences.norm()) / scale if differences.numel() else 0.0
        allowed = TOLERANCES.get(want.dtype, 0.0) if tolerance is None else tolerance
        good = good and own <= allowed  # False for an output that is not finite alone.
        relative = max(relative, own) if own == own else math.inf
        worst = max(worst, float(differences.abs().max()) if differences.numel() else 0.0)
    return {"ok": good, "largest_difference": worst, "relative": relative}
