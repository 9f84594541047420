"""Run an image classifier, and plot the time of each part of a call.

    python examples/image_classifier.py [--builder tensorrt_rtx] [--images 1] [--size 32]

Runs executor_runner with an event trace of layers, reads the trace with ExecuTorch's Inspector, and
draws one bar for each layer, copy and operator on the CPU. A reference engine is one layer: its
time shows how a call is made up, not how fast a GPU is.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import matplotlib as mpl
import torch
from executorch.devtools import Inspector
from executorch.exir import to_edge_transform_and_lower
from torch import nn

import trt_et.runtime
from trt_et import TensorRTPartitioner

CALLS = 5


class Residual(nn.Module):
    """Two convolutions added to their input."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.second = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(channels) for _ in range(2)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The sum of both."""
        y = torch.relu(self.norms[0](self.first(x)))
        return torch.relu(x + self.norms[1](self.second(y)))


def classifier(classes: int = 10) -> nn.Module:
    """A small residual network."""
    stages = [nn.Conv2d(3, 16, 3, stride=2, padding=1), Residual(16)]
    stages += [nn.Conv2d(16, 32, 3, stride=2, padding=1), Residual(32)]
    return nn.Sequential(*stages, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, classes))


def main() -> int:
    """Export, run, plot; 0 if the program agrees with eager."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--builder", default="reference")
    parser.add_argument("--images", type=int, default=1)
    parser.add_argument("--size", type=int, default=32)
    parser.add_argument("--output", type=Path, default=Path("image_classifier"))
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    file = arguments.output / "model.pte"

    model = classifier().eval()
    images = torch.randn(arguments.images, 3, arguments.size, arguments.size)
    # Softmax stays on the CPU, so that the plot has an operator outside the engine.
    whole = nn.Sequential(model, nn.Softmax(-1)).eval()
    partitioner = TensorRTPartitioner(builder=arguments.builder, excluded_ops=["aten.softmax.int"])
    exported = torch.export.export(whole, (images,))
    manager = to_edge_transform_and_lower(exported, partitioner=[partitioner])
    with file.open("wb") as stream:
        manager.to_executorch().write_to_file(stream)
    print(partitioner.report)

    found = run(file, images, "simulated:2" if arguments.builder == "reference" else "real")
    difference = float((found - whole(images)).abs().max())
    print(f"largest difference to eager: {difference:.1e}")
    plot(times(file.with_suffix(".etdump")), arguments.output / "times.png")
    return 0 if difference < 1e-4 else 1


def run(file: Path, images: torch.Tensor, cuda: str) -> torch.Tensor:
    """Return the outputs of executor_runner, which writes its trace next to the program."""
    pixels = file.with_name("images.bin")
    pixels.write_bytes(images.numpy().tobytes())
    command = [trt_et.runtime.runner_path(), "--model_path", file, "--cuda", cuda]
    command += ["--inputs", pixels, "--output_file", file.with_suffix("")]
    command += ["--num_executions", str(CALLS)]
    command += ["--etdump_path", file.with_suffix(".etdump"), "--profile_layers"]
    subprocess.run([*map(str, command), "--print_output", "none"], check=True)
    raw = bytearray(file.with_name("model-0.bin").read_bytes())
    return torch.frombuffer(raw, dtype=torch.float32).reshape(len(images), -1)


# Events that contain others: with --profile_layers, enqueue waits for the layers.
CONTAINERS = ("Method::execute", "OPERATOR_CALL", "DELEGATE_CALL", "enqueue")


def times(trace: Path) -> dict[str, float]:
    """Milliseconds of a call, the median, by event: the first call prepares the others."""
    found: dict[str, float] = {}
    for block in Inspector(etdump_path=str(trace)).event_blocks:
        for event in block.events:
            is_part = block.name == "Execute" and event.name not in CONTAINERS
            if is_part and event.perf_data is not None:
                name = event.name.removeprefix("native_call_").lstrip("_")
                found[name] = found.get(name, 0.0) + event.perf_data.p50
    return dict(sorted(found.items(), key=lambda item: item[1]))


def plot(milliseconds: dict[str, float], file: Path) -> None:
    """One bar for each event."""
    mpl.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 1 + 0.3 * len(milliseconds)), layout="constrained")
    bars = axes.barh(list(milliseconds), list(milliseconds.values()))
    axes.bar_label(bars, fmt="%.3f", padding=3)
    axes.set(xlabel="milliseconds in a call", title="Where the time of a call goes", xscale="log")
    axes.margins(x=0.15)
    figure.savefig(file, dpi=150)
    pyplot.close(figure)
    print(f"wrote {file}: {', '.join(milliseconds)}")


if __name__ == "__main__":
    with torch.no_grad():
        sys.exit(main())
