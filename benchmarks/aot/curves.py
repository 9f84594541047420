"""How time and memory grow, with a straight line fitted to each."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterable, Sequence
from typing import Any

from benchmarks.aot.processes import Result, Task, compare, run

__all__ = ["by_cache", "by_parameters", "by_partitions", "by_workers", "fit"]

_TIMES = ("seconds", "cpu_seconds")


def fit(x: Sequence[float], y: Sequence[float]) -> dict[str, float]:
    """The line through the points, and how much of ``y`` it explains (R squared)."""
    line = statistics.linear_regression(x, y)
    r = statistics.correlation(x, y)
    return {
        "slope": float(f"{line.slope:.6g}"),
        "intercept": float(f"{line.intercept:.6g}"),
        "r_squared": round(r * r, 4),
    }


def by_parameters(sizes: Sequence[float]) -> dict[str, Any]:
    """An MLP from small to large: TensorRT-RTX, a builder without work, and their peers.

    The peers are XNNPACK's partitioner, and Torch-TensorRT's conversion of the same graph (bare).
    """
    points: dict[str, list[Result]] = {}
    for size in sizes:
        for backend in ("rtx", "idle", "xnnpack"):
            arguments = {"model": "mlp", "size": size, "backend": backend}
            points.setdefault(backend, []).append(run(("export", arguments)))
        points.setdefault("bare", []).append(run(("bare", {"model": "mlp", "size": size})))
    return _curves("millions_of_parameters", sizes, points, (*_TIMES, "peak_bytes"))


def by_cache(sizes: Sequence[float]) -> dict[str, Any]:
    """Blocks of a ViT with an engine cache: empty, then filled by another process."""
    points: dict[str, list[Result]] = {"cold": [], "warm": []}
    for size in sizes:
        with tempfile.TemporaryDirectory() as folder:
            arguments = {"model": "vit", "size": size, "backend": "rtx"}
            task = ("export", arguments | {"options": {"cache": folder}})
            for state in points.values():
                state.append(run(task))
    return _curves("millions_of_parameters", sizes, points, (*_TIMES, "peak_bytes"))


def by_workers(sizes: Sequence[float]) -> dict[str, Any]:
    """A program of two engines, built in this process, by one worker process, and by two."""
    points: dict[str, list[Result]] = {}
    for size in sizes:
        tasks: dict[str, Task] = {
            "serial": ("export", {"model": "pair", "size": size, "backend": "rtx"}),
            "1_worker": ("workers", {"count": 1, "size": size}),
            "2_workers": ("workers", {"count": 2, "size": size}),
        }
        for name, task in tasks.items():
            points.setdefault(name, []).append(run(task))
    return _curves("millions_of_parameters", sizes, points, _TIMES)


def by_partitions(counts: Sequence[int]) -> dict[str, Any]:
    """Chains of small partitions: ours without a build, a backend that does nothing, XNNPACK's."""
    backends = ("idle", "noop", "xnnpack")
    tasks = {
        f"{backend} {count}": ("export", {"model": "chain", "size": count, "backend": backend})
        for count in counts
        for backend in backends
    }
    found = compare(tasks, 1)
    points = {backend: [found[f"{backend} {count}"] for count in counts] for backend in backends}
    points["ours_above_noop"] = [
        {key: ours[key] - noop[key] for key in (*_TIMES, "pte_bytes")}
        for ours, noop in zip(points["idle"], points["noop"], strict=True)
    ]
    return _curves("partitions", counts, points, (*_TIMES, "pte_bytes"))


def _curves(
    what: str, x: Sequence[float], points: dict[str, list[Result]], keys: Iterable[str]
) -> dict[str, Any]:
    curves: dict[str, Any] = {what: list(x)}
    for name, results in points.items():
        curves[name] = {}
        for key in keys:
            values = [round(result[key], 4) for result in results]
            curves[name][key] = {"values": values, "fit": fit(x, values)}
    return curves
