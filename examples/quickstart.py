"""Export a model, look at the file, run it, and compare with eager.

python examples/quickstart.py                 # reference engines on a simulated GPU: anywhere
python examples/quickstart.py --builder auto  # TensorRT's engines, run if there is a GPU
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


def main() -> int:
    """Run it; 0 if the program agrees with eager."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--builder", default="reference")
    parser.add_argument("--output", default="quickstart.pte")
    arguments = parser.parse_args()

    layers = (torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Linear(32, 4))
    model = torch.nn.Sequential(*layers).eval()
    inputs = (torch.randn(2, 16),)

    # Export: one engine for each part of the program that TensorRT supports.
    partitioner = TensorRTPartitioner(builder=arguments.builder)
    program = to_edge_transform_and_lower(
        torch.export.export(model, inputs), partitioner=[partitioner]
    ).to_executorch()
    with Path(arguments.output).open("wb") as file:
        program.write_to_file(file)
    print(partitioner.report)

    # Show the contents of the file.
    (method,) = inspect_file(arguments.output).methods
    for delegate in method.delegates:
        if delegate.engine is not None:
            print(f"{delegate.engine.builder} engine for cuda:{delegate.engine.device_id}")

    # Run.
    trt_et.runtime.load(cuda="simulated:2" if arguments.builder == "reference" else None)
    if not trt_et.runtime.is_available():
        print(f"built, not run: {trt_et.runtime.last_error()}")
        return 0
    with explained_errors():
        loaded = Runtime.get().load_program(arguments.output).load_method("forward")
        (output,) = loaded.execute(list(inputs))
    difference = float((output - model(*inputs)).abs().max())
    print(f"largest difference to eager: {difference:.1e}")
    return 0 if difference < 1e-4 else 1


if __name__ == "__main__":
    with torch.no_grad():
        sys.exit(main())
