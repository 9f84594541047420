"""One program on two GPUs: the first half on cuda:0, the second on cuda:1.

python examples/two_gpus.py [--builder tensorrt_rtx]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch
from executorch.exir import to_edge_transform_and_lower
from executorch.runtime import Runtime

import trt_et.runtime
from trt_et import TensorRTPartitioner
from trt_et.inspection import inspect_file
from trt_et.runtime.explain import explained_errors


class TwoHalves(torch.nn.Module):
    """Two perceptrons with an operator on the CPU between them, which cuts the program."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU())
        self.second = torch.nn.Sequential(torch.nn.Linear(32, 8), torch.nn.ReLU())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Both halves."""
        result: torch.Tensor = self.second(torch.cumsum(self.first(x), 1))
        return result


def main() -> int:
    """Run it; 0 if the program agrees with eager."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--builder", default="reference")
    parser.add_argument("--output", type=Path, default=Path("two_gpus.pte"))
    arguments = parser.parse_args()

    model, x = TwoHalves().eval(), torch.randn(2, 16)
    partitioner = TensorRTPartitioner(
        builder=arguments.builder,
        excluded_ops=["aten.cumsum"],
        device=lambda partition: f"cuda:{partition.index}",
    )
    exported = torch.export.export(model, (x,))
    manager = to_edge_transform_and_lower(exported, partitioner=[partitioner])
    with arguments.output.open("wb") as file:
        manager.to_executorch().write_to_file(file)
    (method,) = inspect_file(arguments.output).methods
    devices = [d.engine.device_id for d in method.delegates if d.engine is not None]
    print(f"engines on cuda:{devices[0]} and cuda:{devices[1]}")
    for use in method.devices:
        print(f"{use.device}: {use.tensors} tensors, {use.planned_bytes} planned bytes")
    if arguments.builder != "reference":
        return 0

    trt_et.runtime.load(cuda="simulated:2")
    with explained_errors():
        loaded = Runtime.get().load_program(arguments.output).load_method("forward")
        (output,) = loaded.execute([x])
    difference = float((output - model(x)).abs().max())
    print(f"largest difference to eager: {difference:.1e}")
    return 0 if devices == [0, 1] and difference < 1e-4 else 1


if __name__ == "__main__":
    with torch.no_grad():
        sys.exit(main())
