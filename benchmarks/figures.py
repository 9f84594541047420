"""The form of a figure, and facts of the machine that it was measured on."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

Figure = dict[str, Any]


def figure(value: float | None, goal: float, ok: bool | None, how: str, **details: Any) -> Figure:
    """A goal's value; None where it could not be measured here."""
    rounded = value if value is None else round(value, 4)
    return {"value": rounded, "goal": goal, "ok": ok, "how": how} | (
        {"details": details} if details else {}
    )


def named_figure(
    name: str, value: float, goal: float, how: str, *, ok: bool | None = None, **details: Any
) -> tuple[str, Figure]:
    """Return a goal's name and figure; by default it is ``ok`` if the value is at most the goal."""
    return name, figure(value, goal, value <= goal if ok is None else ok, how, **details)


def machine() -> dict[str, Any]:
    """What the figures depend on."""
    cpu = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        cpu = next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    return {
        "cpu": cpu,
        "cores": len(os.sched_getaffinity(0)),
        "gpu": None,
        "system": platform.system(),
        "python": platform.python_version(),
        "torch": metadata.version("torch"),
        "executorch": metadata.version("executorch"),
    }
