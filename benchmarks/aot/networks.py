"""P25 to P28: what ``builder="onnx"`` costs: exports, files, and builds at the first load."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.aot.processes import Task, compare, interleave, run
from benchmarks.figures import Figure, figure

__all__ = ["builds", "exports"]

_BUILDERS = ("onnx", "rtx")


def exports(millions: float, rounds: int) -> Iterator[tuple[str, Figure]]:
    """Each goal's name and figure."""
    tasks = {builder: _export("vit", millions, builder) for builder in _BUILDERS}
    times = compare(tasks, rounds)
    ratio = times["onnx"]["seconds"] / times["rtx"]["seconds"]
    yield (
        "P25",
        figure(
            ratio,
            1.0,
            ratio <= 1.0,
            f"ViT blocks of {millions} M parameters, from the exported program to the written "
            "file: time with builder='onnx' / time with TensorRT-RTX, engine build included; "
            "medians of interleaved runs in one process",
            ratio_of_processor_time=round(
                times["onnx"]["cpu_seconds"] / times["rtx"]["cpu_seconds"], 4
            ),
            seconds={name: result["seconds"] for name, result in times.items()},
        ),
    )
    found = interleave(
        {builder: _export("mlp", millions, builder) for builder in _BUILDERS}, rounds=1
    )
    onnx, rtx = found["onnx"], found["rtx"]
    ratio = onnx["peak_bytes"] / rtx["peak_bytes"]
    yield (
        "P26",
        figure(
            ratio,
            1.0,
            ratio <= 1.0,
            f"peak resident set above the imports' of exporting an MLP of {millions} M fp32 "
            "parameters with builder='onnx' / the same with TensorRT-RTX, each in a process of its "
            "own. in_weights: the same in units of its weights",
            in_weights={
                name: round(result["peak_bytes"] / result["weights_bytes"], 3)
                for name, result in found.items()
            },
        ),
    )
    ratio = onnx["pte_bytes"] / onnx["weights_bytes"]
    yield (
        "P27",
        figure(
            ratio,
            1.02,
            ratio <= 1.02,
            "bytes of that MLP's .pte with builder='onnx' / bytes of its weights",
            **{f"{name}_pte_bytes": result["pte_bytes"] for name, result in found.items()},
        ),
    )


def builds(millions: float, rounds: int) -> Iterator[tuple[str, Figure]]:
    """The same of the engine's build on the target machine."""
    found = run(("network_build", {"size": millions, "rounds": rounds}))
    ratio = found["native"] / found["bindings"]
    yield (
        "P28",
        figure(
            ratio,
            1.05,
            ratio <= 1.05,
            f"ViT blocks of {millions} M parameters as an ONNX network: time of the native "
            "provider's build with TensorRT-RTX (weights verified, without a driver) / the same "
            "build by TensorRT-RTX's Python bindings, both with weights in memory; medians, in "
            "turn. native_kept: the build and the write into the engine folder. kept: the engine "
            "from that folder, without loading it. read: reading that file",
            **found,
        ),
    )


def _export(model: str, size: float, backend: str) -> Task:
    return "export", {"model": model, "size": size, "backend": backend}
