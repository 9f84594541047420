"""P25 to P27: what exports with ``builder="onnx"`` cost, beside those with TensorRT-RTX."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.aot.processes import Task, compare, interleave
from benchmarks.figures import Figure, figure

__all__ = ["exports"]

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


def _export(model: str, size: float, backend: str) -> Task:
    return "export", {"model": model, "size": size, "backend": backend}
