"""P29 to P33: the figures, from what was read of the engines."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping
from typing import Any

from benchmarks.aot.processes import run
from benchmarks.figures import Figure, figure

Models = Mapping[str, Mapping[str, Mapping[str, Any]]]
"""Model -> way -> what was read of its engines (``facts.py``)."""

PEERS = ("onnx_parser", "torch_tensorrt")
TASKS = "benchmarks.engines.tasks"
_PEERS_IN_WORDS = (
    "the least of two other ways of the same model in float16 (torch.onnx.export and the library's "
    "own parser; Torch-TensorRT's conversion), both built by the same library; the worst model"
)


def moved_bytes(facts: Mapping[str, Any]) -> int | None:
    """Bytes that kernels read and write, constants included; None if some sizes are dynamic."""
    parts = (facts.get("activation_bytes"), facts.get("constant_bytes"))
    return None if None in parts else sum(part for part in parts if part is not None)


def figure_of(facts: Mapping[str, Any], key: str) -> int | None:
    """Return a figure of an engine; None if it is unknown, or if there is no engine.

    The kernels of a loop count once in the text of an engine, so how many a call launches, and what
    they read and write, is unknown.
    """
    if facts.get("has_loops") and key != "activation_memory_bytes":
        return None
    return moved_bytes(facts) if key == "moved_bytes" else facts.get(key)


def best_peer(ways: Mapping[str, Mapping[str, Any]], key: str) -> int | None:
    """The least that another way has of something; None if it is unknown of all."""
    known = [figure_of(ways.get(peer, {}), key) for peer in PEERS]
    return min((value for value in known if value is not None), default=None)


def ratios(
    models: Models, key: str, way: str = "ours", peer: str | None = None
) -> dict[str, float]:
    """Ours by the best of the peers, or by one of them, where both are known."""
    found = {}
    for name, ways in models.items():
        mine = figure_of(ways.get(way, {}), key)
        theirs = figure_of(ways.get(peer, {}), key) if peer else best_peer(ways, key)
        if mine is not None and theirs:
            found[name] = round(mine / theirs, 4)
    return found


def engine_goals(models: Models) -> Iterator[tuple[str, Figure]]:
    """P29 to P32."""
    kernels = ratios(models, "kernels")
    yield _worst("P29", kernels, 1.0, f"kernels of a call / {_PEERS_IN_WORDS}", mean=0.9)
    moved = ratios(models, "moved_bytes")
    what = (
        "bytes that kernels read and write, constants included (an estimate from the engine's text)"
    )
    yield _worst("P30", moved, 1.03, f"{what} / {_PEERS_IN_WORDS}", mean=0.95)
    memory = ratios(models, "activation_memory_bytes")
    yield _worst("P31", memory, 1.05, f"activation memory of an engine / {_PEERS_IN_WORDS}")
    precision = ratios(models, "moved_bytes", "ours_precision", "onnx_parser")
    yield _worst(
        "P32",
        precision,
        1.2,
        "bytes as in P30 of the float32 model with precision='float16' / those of the float16 "
        "model by torch.onnx.export and the library's own parser; the worst model",
    )


def _worst(
    name: str, found: Mapping[str, float], goal: float, how: str, *, mean: float | None = None
) -> tuple[str, Figure]:
    if not found:
        return figure(name, None, goal, f"not measured: no engine has the figure. {how}")
    value, average = max(found.values()), statistics.geometric_mean(found.values())
    ok = value <= goal and (mean is None or average <= mean)
    details: dict[str, Any] = {"geometric_mean": round(average, 4)}
    if mean is not None:
        details["goal_of_geometric_mean"] = mean
        how += f"; and the geometric mean of all at most {mean}"
    return figure(name, value, goal, how, ok=ok, **details, ratios=dict(found))


def export_goal(rounds: int) -> tuple[str, Figure]:
    """P33, while nothing else runs."""
    made = run(("partitioner", {"again": 3}), TASKS)
    milliseconds = {name: round(1000 * seconds, 1) for name, seconds in made.items()}
    seconds = run(("exports", {"model": "mobilenet_v3", "rounds": rounds}), TASKS)
    ratio = seconds["ours"] / (seconds["idle"] + seconds["bare"])
    return figure(
        "P33",
        ratio,
        1.15,
        "processor time of MobileNet V3 in float16 from the exported program to the written file, "
        "with TensorRTPartitioner() / (with a backend that does nothing + Torch-TensorRT's "
        "lowering, converters and build alone), medians of interleaved runs in one process; and "
        "TensorRTPartitioner() itself takes at most 20 ms of processor time, the first in a "
        "process as well",
        ok=ratio <= 1.15 and max(milliseconds.values()) <= 20,
        partitioner_milliseconds=milliseconds,
        cpu_seconds={name: round(value, 3) for name, value in seconds.items()},
    )
