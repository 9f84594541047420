"""One engine for a range of batch sizes, tuned for two of them.

python examples/dynamic.py [--builder tensorrt_rtx]
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
from trt_et.runtime.explain import explained_errors


class Classifier(torch.nn.Module):
    """Features, float32 [N, 16], to probabilities, float32 [N, 4]."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4)
        )

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Classify."""
        probabilities: torch.Tensor = self.layers(features).softmax(-1)
        return probabilities


def main() -> int:
    """Run it; 0 if every batch size agrees with eager."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--builder", default="reference")
    parser.add_argument("--output", type=Path, default=Path("dynamic.pte"))
    arguments = parser.parse_args()

    model = Classifier().eval()
    batch = torch.export.Dim("batch", min=1, max=32)  # Engines need an upper bound.
    exported = torch.export.export(
        model, (torch.randn(8, 16),), dynamic_shapes={"features": {0: batch}}
    )
    # TensorRT chooses kernels for one size of each profile; calls take the first that fits.
    profiles = [{"features": {0: 1}}, {"features": {0: (2, 16, 32)}}]
    partitioner = TensorRTPartitioner(builder=arguments.builder, optimization_profiles=profiles)
    manager = to_edge_transform_and_lower(exported, partitioner=[partitioner])
    with arguments.output.open("wb") as file:
        manager.to_executorch().write_to_file(file)
    print(partitioner.report)
    if arguments.builder != "reference":
        return 0

    trt_et.runtime.load(cuda="simulated:2")
    worst = 0.0
    with explained_errors():
        method = Runtime.get().load_program(arguments.output).load_method("forward")
        for size in (1, 2, 31, 32):
            x = torch.randn(size, 16)
            (output,) = method.execute([x])
            worst = max(worst, float((output - model(x)).abs().max()))
            print(f"batch {size}: {tuple(output.shape)}")
    print(f"largest difference to eager: {worst:.1e}")
    return 0 if worst < 1e-5 else 1


if __name__ == "__main__":
    with torch.no_grad():
        sys.exit(main())
