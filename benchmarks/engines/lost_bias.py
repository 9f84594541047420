"""What it costs to avoid TensorRT-RTX's kernel that may lose a bias.

``python -m benchmarks.engines.lost_bias [NAME ...]`` builds the benchmark's models in half
precision, the zoo's as they are, and its diffusion block with the widths of Stable Diffusion and
``precision="float16"``.
It writes the kernels of each engine as TensorRT-RTX builds it first, and as it is kept, to
``results/lost_bias.json``, and prints a line for each network.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import partial
from importlib import metadata
from typing import Any

import torch
from executorch.exir import to_edge_transform_and_lower

from benchmarks.engines.models import MODELS, Model, make_model
from benchmarks.figures import figure, write
from tests.support.native_environment import ROOT
from tests.support.zoo import lowered, vision
from trt_et import TensorRTPartitioner
from trt_et.conversion.network import Network
from trt_et.engines import tensorrt_rtx
from trt_et.inspection import read_kernels
from trt_et.inspection.kernels import lost_biases

_OUTPUT = ROOT / "benchmarks/results/lost_bias.json"
_TEXT = torch.randn(2, 77, 24)


def _block(width: int, size: int) -> Model:
    inputs = (torch.randn(2, width, size, size), torch.tensor([3, 700]), _TEXT)
    return Model(vision.DiffusionBlock(width).eval(), inputs)


def _zoo(name: str) -> Model:
    case = lowered.make(name)
    return Model(case.model, case.inputs, case.dynamic, strict=case.strict)


NETWORKS: dict[str, Callable[[], Model]] = {
    "diffusion block of width 320": partial(_block, 320, 32),
    "diffusion block of width 640": partial(_block, 640, 16),
    **{name: lambda name=name: make_model(name).half() for name in MODELS},  # type: ignore[misc]
    **{f"zoo: {name}": partial(_zoo, name) for name in lowered.MODELS},
}


def _measure(model: Model, precision: str | None) -> list[dict[str, Any]]:
    """Return the figures of the engines of a model, of each one as often as it is built."""
    found: list[dict[str, Any]] = []
    check = tensorrt_rtx.keeps_biases

    def read(network: Network, engine: memoryview, partition: str) -> bool:
        kernels, results = read_kernels(engine), lost_biases(engine)
        assert kernels is not None
        assert results is not None
        figures = {"kernels": len(kernels.kernels), "bytes": kernels.bytes_moved}
        found.append({"partition": partition, "lost": len(results), **figures})
        return check(network, engine, partition)

    tensorrt_rtx.keeps_biases = read
    try:
        with torch.no_grad():
            program = torch.export.export(
                model.module, model.inputs, dynamic_shapes=model.dynamic_shapes, strict=model.strict
            )
            partitioner = TensorRTPartitioner(
                builder="tensorrt_rtx", precision=precision, progress=False
            )
            to_edge_transform_and_lower(program, partitioner=[partitioner])
    finally:
        tensorrt_rtx.keeps_biases = check
    return found


def _difference(engines: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the totals of a model's engines, as they are built first and last."""
    first = {each["partition"]: each for each in reversed(engines)}.values()
    last = {each["partition"]: each for each in engines}.values()
    return {
        name: [sum(each[name] or 0 for each in which) for which in (first, last)]
        for name in ("lost", "kernels", "bytes")
    }


def main() -> None:
    """Build, print, write."""
    stored = json.loads(_OUTPUT.read_text()) if _OUTPUT.exists() else {}
    networks: dict[str, Any] = stored.get("networks", {})
    for name in sys.argv[1:] or NETWORKS:
        precision = "float16" if "width" in name else None
        networks[name] = _difference(_measure(NETWORKS[name](), precision))
        sys.stdout.write(f"{name}: {networks[name]}\n")
        sys.stdout.flush()
        left = sum(each["lost"][1] for each in networks.values())
        goals = dict([figure("P39", left, 0, "kernels that may lose a bias in engines kept")])
        versions = {each: metadata.version(each) for each in ("tensorrt-rtx", "torch")}
        command = "python -m benchmarks.engines.lost_bias"
        write(_OUTPUT, command, goals, versions=versions, networks=networks)


if __name__ == "__main__":
    main()
