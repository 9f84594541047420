"""Train a small ResNet, export it in several precisions, and find the layers that int8 costs most.

Needs ``pip install ".[rtx,demo]"``. The images are noisy discs, rings, crosses and squares that
this script draws. Reference engines on a simulated GPU classify them; TensorRT-RTX builds the
engines whose bytes the table has, without a GPU. ``--short`` leaves these out.
"""

from __future__ import annotations

import argparse
import sys
from collections import OrderedDict

import torch
from executorch.exir import to_edge_transform_and_lower
from rich.console import Console
from rich.table import Table
from torch import nn
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
from torchao.quantization.pt2e.quantizer import QuantizationConfig

import trt_et.runtime
from trt_et import TensorRTPartitioner
from trt_et.quantizer import TensorRTQuantizer, int8, int8_weight_only

trt_et.runtime.load(cuda="simulated:1")
from executorch.runtime import Runtime  # noqa: E402

SIZE = 32
# Signal-to-noise ratio of the logits, in dB, that a precision must reach.
LIMITS = {"float32": 100.0, "float16": 50.0, "bfloat16": 25.0, "int8": 15.0, "int8 weights": 25.0}


class Block(nn.Module):
    """Two convolutions and what they skip."""

    def __init__(self, width: int, wider: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(width, wider, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(wider, wider, 3, 1, 1, bias=False)
        self.skip = nn.Conv2d(width, wider, 1, stride, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(wider) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Add the result of the convolutions to the skipped input."""
        y = torch.relu(self.norms[0](self.first(x)))
        return torch.relu(self.norms[1](self.second(y)) + self.norms[2](self.skip(x)))


class ResNet(nn.Sequential):
    """Images [N, 1, 32, 32] to the logits of four classes, 2.8 million weights."""

    def __init__(self) -> None:
        super().__init__(
            OrderedDict(
                stem=nn.Conv2d(1, 32, 5, 2, 2, bias=False),
                norm=nn.BatchNorm2d(32),
                relu=nn.ReLU(),
                block1=Block(32, 64, 2),
                block2=Block(64, 128, 2),
                block3=Block(128, 256, 2),
                top=nn.Conv2d(256, 512, 3, 2, 1),
                activation=nn.ReLU(),
                pool=nn.AdaptiveAvgPool2d(1),
                flat=nn.Flatten(),
                head=nn.Linear(512, 4),
            )
        )


def draw(number: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return images, float32 [N, 1, 32, 32], and their classes, int64 [N]."""
    random = torch.Generator().manual_seed(seed)
    classes = torch.randint(0, 4, (number,), generator=random)
    center = torch.rand(number, 2, 1, 1, generator=random) * 12 + 10
    radius = torch.rand(number, 1, 1, generator=random) * 4 + 5
    rows, columns = torch.meshgrid(*[torch.arange(float(SIZE))] * 2, indexing="ij")
    y, x = (rows - center[:, 0]).abs(), (columns - center[:, 1]).abs()
    distance, far, near = torch.hypot(x, y), torch.maximum(x, y), torch.minimum(x, y)
    shapes = torch.stack(
        [
            distance < radius,
            (distance < radius) & (distance > radius - 3),
            (far < radius) & (near < 2),
            far < radius * 0.85,
        ],
        1,
    )
    chosen = shapes[torch.arange(number), classes].float()[:, None]
    return chosen + torch.randn(chosen.shape, generator=random) * 0.4, classes


def train(steps: int) -> ResNet:
    """Return a trained model."""
    torch.manual_seed(0)
    model = ResNet().train()
    optimizer = torch.optim.AdamW(model.parameters(), 2e-3)
    for step in range(steps):
        images, classes = draw(32, step)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images), classes).backward()
        optimizer.step()
    return model.eval()


def quantized(
    program: torch.export.ExportedProgram,
    images: torch.Tensor,
    config: QuantizationConfig,
    *left_out: str,
) -> torch.export.ExportedProgram:
    """Quantize every product but those of some modules."""
    quantizer = TensorRTQuantizer().set_global(config)
    for name in left_out:
        quantizer.set_module_name(name, None)
    prepared = prepare_pt2e(program.module(), quantizer)
    prepared(images)
    return torch.export.export(convert_pt2e(prepared), (images,))


def lower(program: torch.export.ExportedProgram, builder: str, precision: str | None) -> bytes:
    """Return the program's ``.pte``: one engine."""
    partitioner = TensorRTPartitioner(builder=builder, precision=precision, progress=False)
    return bytes(
        to_edge_transform_and_lower(program, partitioner=[partitioner]).to_executorch().buffer
    )


def run(program: bytes, images: torch.Tensor) -> torch.Tensor:
    """Run a program on the simulated GPU."""
    (result,) = Runtime.get().load_program(program).load_method("forward").execute([images])
    return result


def signal_to_noise(found: torch.Tensor, wanted: torch.Tensor) -> float:
    """Return the signal-to-noise ratio in dB."""
    noise = (found.double() - wanted.double()).square().sum().clamp(min=1e-30)
    return float(10 * torch.log10(wanted.double().square().sum() / noise))


def main() -> int:
    """Print the tables; 0 if each precision reaches its limit."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--short", action="store_true", help="ten images, no engines, no layers")
    parser.add_argument("--steps", type=int, default=160, help="steps of training")
    parser.add_argument("--only", choices=LIMITS, help="one precision")
    arguments = parser.parse_args()
    model = train(arguments.steps)
    number = 10 if arguments.short else 100
    calibration, (images, classes) = draw(number, 10_000)[0], draw(number, 20_000)
    with torch.no_grad():
        expected = model(images)
    program = torch.export.export(model, (images,))
    quantized_programs = {
        "int8": quantized(program, calibration, int8()),
        "int8 weights": quantized(program, calibration, int8_weight_only()),
    }
    table = Table("precision", f"right of {number}", "signal to noise", "TensorRT-RTX engine")
    agrees = True
    for name in [arguments.only] if arguments.only else LIMITS:
        exported = quantized_programs.get(name, program)
        precision = name if name in ("float16", "bfloat16") else None
        result = run(lower(exported, "reference", precision), images)
        ratio = signal_to_noise(result, expected)
        agrees = agrees and ratio >= LIMITS[name]
        right = str(int((result.argmax(1) == classes).sum()))
        size = ""
        if not arguments.short:
            size = f"{len(lower(exported, 'tensorrt_rtx', precision)) / 1e6:.1f} MB"
        table.add_row(name, right, f"{ratio:.1f} dB", size)
    Console().print(table)
    if not arguments.short:
        show_layers(model, program, calibration, images)
    return 0 if agrees else 1


def show_layers(
    model: ResNet,
    program: torch.export.ExportedProgram,
    calibration: torch.Tensor,
    images: torch.Tensor,
) -> None:
    """Print what int8 gains if one layer is left out, the largest gains first."""
    with torch.no_grad():
        expected = model(images)
    costs = Table("int8, but this layer in float32", "signal to noise")
    layers = [n for n, m in model.named_modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    found = {}
    for name in layers:
        without = quantized(program, calibration, int8(), name).module()
        with torch.no_grad():
            found[name] = signal_to_noise(without(images), expected)
    for name, ratio in sorted(found.items(), key=lambda item: -item[1])[:5]:
        costs.add_row(name, f"{ratio:.1f} dB")
    Console().print(costs)


if __name__ == "__main__":
    sys.exit(main())
