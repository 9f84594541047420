"""An int8 model by PT2E: quantize, calibrate, export, compare.

python examples/quantized.py [--builder tensorrt_rtx]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch
from executorch.exir import to_edge_transform_and_lower
from executorch.runtime import Runtime
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

import trt_et.runtime
from trt_et import TensorRTPartitioner
from trt_et.quantizer import TensorRTQuantizer, int8
from trt_et.runtime.explain import explained_errors


def quantize(model: torch.nn.Module, samples: list[torch.Tensor]) -> torch.export.ExportedProgram:
    """The model with int8 weights and activations, calibrated with the samples."""
    exported = torch.export.export(model, (samples[0],)).module()
    prepared = prepare_pt2e(exported, TensorRTQuantizer().set_global(int8()))
    for sample in samples:
        prepared(sample)
    return torch.export.export(convert_pt2e(prepared), (samples[0],))


def main() -> int:
    """Run it; 0 if the program agrees with the quantized model in eager mode."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--builder", default="reference")
    parser.add_argument("--output", type=Path, default=Path("quantized.pte"))
    arguments = parser.parse_args()

    torch.manual_seed(0)
    layers = (torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 8))
    model = torch.nn.Sequential(*layers).eval()
    samples = [torch.randn(4, 64) for _ in range(8)]
    program = quantize(model, samples)
    partitioner = TensorRTPartitioner(builder=arguments.builder)
    manager = to_edge_transform_and_lower(program, partitioner=[partitioner])
    with arguments.output.open("wb") as file:
        manager.to_executorch().write_to_file(file)
    print(partitioner.report)
    if arguments.builder != "reference":
        return 0

    trt_et.runtime.load(cuda="simulated:2")
    with explained_errors():
        method = Runtime.get().load_program(arguments.output).load_method("forward")
        (output,) = method.execute([samples[0]])
    quantized, float32 = program.module()(samples[0]), model(samples[0])
    difference = float((output - quantized).abs().max())
    print(f"largest difference to the quantized model: {difference:.1e}")
    print(f"largest difference to the float model: {float((output - float32).abs().max()):.1e}")
    step = float((quantized.abs().max() / 127).item())
    return 0 if difference <= 1.01 * step else 1


if __name__ == "__main__":
    with torch.no_grad():
        sys.exit(main())
