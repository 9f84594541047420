"""Exports the program that the other files of this folder serve: ``python export.py model.pte``."""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from executorch.exir import to_edge_transform_and_lower

from trt_et import TensorRTPartitioner

FEATURES, CLASSES, MAX_ROWS = 64, 10, 8


def make_model(seed: int) -> torch.nn.Module:
    """Return a classifier with random weights."""
    torch.manual_seed(seed)
    layers = torch.nn.Linear(FEATURES, 256), torch.nn.ReLU(), torch.nn.Linear(256, CLASSES)
    return torch.nn.Sequential(*layers).eval()


def export(path: Path, seed: int, builder: str = "reference") -> None:
    """Write the program of a model, and put it in place with one renaming."""
    rows = {0: torch.export.Dim("rows", max=MAX_ROWS)}
    example = (torch.ones(2, FEATURES),)
    program = torch.export.export(make_model(seed), example, dynamic_shapes=(rows,))
    partitioner = TensorRTPartitioner(builder=builder)
    manager = to_edge_transform_and_lower(program, partitioner=[partitioner])
    new = path.with_name(f"{path.name}.new")
    new.write_bytes(manager.to_executorch().buffer)
    new.replace(path)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("path", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--builder", default="reference")
    arguments = parser.parse_args()
    export(arguments.path, arguments.seed, arguments.builder)
