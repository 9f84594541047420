"""How time and memory grow, with a straight line fitted to each."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from benchmarks.aot.processes import Result, compare, run

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


def by_partitions(counts: Sequence[int]) -> dict[str, Any]:
    """Chains of small partitions: ours without a build, a backend that does nothing, XNNPACK's.

    ``ours`` is what happens in this package alone, in the first of the three.
    """
    tasks = {
        backend: {
            str(count): ("export", {"model": "chain", "size": count, "backend": backend})
            for count in counts
        }
        for backend in ("idle", "noop", "xnnpack")
    }
    points = {}
    for backend, sizes in tasks.items():
        # Several of the first: a collection of garbage takes as long as all that is ours.
        found = compare(sizes, 3 if backend == "idle" else 1)
        points[backend] = list(found.values())
    curves = _curves("partitions", counts, points, (*_TIMES, "pte_bytes"))
    own = {"ours": points["idle"]}
    return curves | _curves("partitions", counts, own, ("own_cpu_seconds",))


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
