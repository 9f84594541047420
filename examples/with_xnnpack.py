"""Two backends in one program: TensorRT first, XNNPACK for the rest.

python examples/with_xnnpack.py [--builder tensorrt_rtx]
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import to_edge_transform_and_lower
from executorch.runtime import Runtime

import trt_et.runtime
from trt_et import TensorRTPartitioner
from trt_et.inspection import inspect_file
from trt_et.runtime.explain import explained_errors


def main() -> int:
    """Run it; 0 if both backends have a part, and the program agrees with eager."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--builder", default="reference")
    parser.add_argument("--output", type=Path, default=Path("with_xnnpack.pte"))
    arguments = parser.parse_args()

    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3),
        torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(1),
        torch.nn.Flatten(),
        torch.nn.Linear(8, 4),
    ).eval()
    x = torch.randn(1, 3, 16, 16)
    # ExecuTorch calls partitioners in this order. XNNPACK gets the excluded classifier.
    tensorrt = TensorRTPartitioner(builder=arguments.builder, excluded_ops=["aten.linear"])
    exported = torch.export.export(model, (x,))
    manager = to_edge_transform_and_lower(exported, partitioner=[tensorrt, XnnpackPartitioner()])
    with arguments.output.open("wb") as file:
        manager.to_executorch().write_to_file(file)
    (method,) = inspect_file(arguments.output).methods
    backends = Counter(delegate.backend_id for delegate in method.delegates)
    print(dict(backends))
    if arguments.builder != "reference":
        return 0

    trt_et.runtime.load(cuda="simulated:2")
    with explained_errors():
        loaded = Runtime.get().load_program(arguments.output).load_method("forward")
        (output,) = loaded.execute([x])
    difference = float((output - model(x)).abs().max())
    print(f"largest difference to eager: {difference:.1e}")
    both = set(backends) == {"TensorRTBackend", "XnnpackBackend"}
    return 0 if both and difference < 1e-4 else 1


if __name__ == "__main__":
    with torch.no_grad():
        sys.exit(main())
