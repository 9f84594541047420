"""How time and memory grow, with a straight line fitted to each."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from benchmarks.aot.processes import Result, compare, run

__all__ = ["by_parameters", "by_partitions", "fit"]


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
    """An MLP from small to large: TensorRT-RTX, a builder without work, and the bare build."""
    points: dict[str, list[Result]] = {}
    for size in sizes:
        for backend in ("rtx", "idle"):
            arguments = {"model": "mlp", "size": size, "backend": backend}
            points.setdefault(backend, []).append(run(("export", arguments)))
        points.setdefault("bare", []).append(run(("bare", {"model": "mlp", "size": size})))
    return _curves(
        "millions_of_parameters", sizes, points, ("seconds", "cpu_seconds", "peak_bytes")
    )


def by_partitions(counts: Sequence[int]) -> dict[str, Any]:
    """Chains of small partitions, ours without a build and a backend that does nothing."""
    tasks = {
        f"{backend} {count}": ("export", {"model": "chain", "size": count, "backend": backend})
        for count in counts
        for backend in ("idle", "noop")
    }
    found = compare(tasks, 1)
    points = {
        backend: [found[f"{backend} {count}"] for count in counts] for backend in ("idle", "noop")
    }
    points["ours_above_noop"] = [
        {key: ours[key] - noop[key] for key in ("seconds", "cpu_seconds", "pte_bytes")}
        for ours, noop in zip(points["idle"], points["noop"], strict=True)
    ]
    return _curves("partitions", counts, points, ("seconds", "cpu_seconds", "pte_bytes"))


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
