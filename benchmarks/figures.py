"""The form of a figure, and facts of the machine that it was measured on."""

from __future__ import annotations

import json
import os
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

Figure = dict[str, Any]


def figure(
    name: str, value: float | None, goal: float, how: str, *, ok: bool | None = None, **details: Any
) -> tuple[str, Figure]:
    """Return a goal's name and figure.

    Args:
        name: Such as ``"P1"``.
        value: None where it could not be measured here.
        goal: The most that the value may be.
        how: How it is measured.
        ok: Whether the goal is reached; by default whether the value is at most the goal.
        details: What else was found.
    """
    if value is not None:
        ok = value <= goal if ok is None else ok
        value = round(value, 4)
    found = {"value": value, "goal": goal, "ok": ok, "how": how}
    return name, found | ({"details": details} if details else {})


def write(output: Path, command: str, goals: dict[str, Figure], **more: Any) -> None:
    """Write a file of results."""
    result = {"machine": machine(), "command": command, **more, "goals": goals}
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(result, indent=2) + "\n")


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
