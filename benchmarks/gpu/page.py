"""A Markdown table of the times."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.engines.goals import figure_of
from benchmarks.engines.page import TITLES
from benchmarks.gpu.ways import WAYS
from tests.support.markdown import table

_HEAD = ("model", "kernels", "MB moved", "trt-et ms", "eager", "eager, CUDA graph")
_COMPILED = ("compile, CUDA graphs", "compile", "least other / trt-et")


def times_table(output: Path, folder: Path) -> str:
    """Host milliseconds of a call until the GPU is done; ``-`` is unknown, ``failed`` an error.

    Args:
        output: What ``run`` wrote.
        folder: What ``export`` wrote.
    """
    models = json.loads(output.read_text())["models"]
    rows = [_row(name, ways, _facts(folder / f"{name}.json")) for name, ways in models.items()]
    return "\n".join(table(_HEAD + _COMPILED, rows)) + "\n"


def _facts(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return found


def _row(name: str, ways: dict[str, Any], facts: dict[str, Any]) -> list[str]:
    kernels, moved = (figure_of(facts, key) for key in ("kernels", "moved_bytes"))
    traffic = "-" if moved is None else f"{moved / 1e6:.1f}"
    others = [ways[way]["done_us"] for way in WAYS if "done_us" in ways.get(way, {})]
    mine = ways.get("ours", {}).get("done_us")
    ratio = f"{min(others) / mine:.2f}" if mine and others else "-"
    times = [_milliseconds(ways.get(way)) for way in ("ours", *WAYS)]
    return [TITLES[name], "-" if kernels is None else str(kernels), traffic, *times, ratio]


def _milliseconds(found: dict[str, Any] | None) -> str:
    if found is None or str(found.get("error", "")).startswith("not run"):
        return "-"
    return f"{found['done_us'] / 1000:.3f}" if "done_us" in found else "failed"
