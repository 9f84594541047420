"""Reads a kit: programs, their inputs, and what eager returned for them, as files."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

__all__ = ["INDEX", "Model", "compare", "read_kit", "read_tensor"]

INDEX = "kit.json"


@dataclass(frozen=True)
class Model:
    """One model of a kit.

    Attributes:
        name: Its name.
        program: The ``.pte``.
        inputs: Its inputs.
        expected: What eager returned for them.
        files: The inputs' files, as executor_runner takes them.
        outputs: What the kit says of the outputs: dtype, shape, memory order.
    """

    name: str
    program: Path
    inputs: list[torch.Tensor]
    expected: list[torch.Tensor]
    files: list[Path]
    outputs: list[dict[str, Any]]


def read_kit(folder: Path, builder: str) -> list[Model]:
    """The models, with the engines of a builder."""
    return [
        Model(
            name,
            folder / f"{name}.{builder}.pte",
            [read_tensor(folder / entry["file"], entry) for entry in facts["inputs"]],
            [read_tensor(folder / entry["file"], entry) for entry in facts["outputs"]],
            [folder / entry["file"] for entry in facts["inputs"]],
            facts["outputs"],
        )
        for name, facts in json.loads((folder / INDEX).read_text()).items()
    ]


def read_tensor(path: Path, entry: dict[str, Any]) -> torch.Tensor:
    """A tensor from its raw bytes in memory order."""
    order: list[int] = entry["order"]
    raw = torch.frombuffer(bytearray(path.read_bytes()), dtype=getattr(torch, entry["dtype"]))
    inverse = [order.index(dim) for dim in range(len(order))]
    return raw.reshape([entry["shape"][dim] for dim in order]).permute(inverse)


def compare(found: list[torch.Tensor], expected: list[torch.Tensor]) -> dict[str, Any]:
    """How far outputs are from eager's: largest difference, and its share of the largest value."""
    if len(found) != len(expected):
        return {"ok": False, "why": f"{len(found)} outputs, expected {len(expected)}"}
    worst, relative = 0.0, 0.0
    for have, want in zip(found, expected, strict=True):
        if have.shape != want.shape or have.dtype != want.dtype:
            return {"ok": False, "why": f"{have.dtype} {have.shape}: not {want.dtype} {want.shape}"}
        if have.numel():
            difference = (have.double() - want.double()).abs().max().item()
            worst = max(worst, difference)
            relative = max(relative, difference / max(want.double().abs().max().item(), 1e-12))
    # TensorRT may use TF32 on tensor cores: 10 bits of mantissa.
    return {"ok": relative < 5e-3, "largest_difference": worst, "relative": relative}
