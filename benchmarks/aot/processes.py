"""Measurements in fresh processes, interleaved."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Result = dict[str, Any]
Task = tuple[str, dict[str, Any]]
COMMAND = ("benchmarks.aot.tasks",)
ROOT = Path(__file__).parents[2]
# Bytecode is kept, as that of an installed package is.
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "PYTHONWARNINGS": "ignore",
    "PYTHONDONTWRITEBYTECODE": "",
}


def run(task: Task, command: Sequence[str] = COMMAND) -> Result:
    """One measurement.

    Args:
        task: A function's name and its arguments.
        command: The module that has it, and the module's own arguments.

    Raises:
        SystemExit: It failed; with the end of what it said.
    """
    name, arguments = task
    with tempfile.NamedTemporaryFile(suffix=".json") as result:
        done = subprocess.run(
            [sys.executable, "-m", *command, name, json.dumps(arguments), result.name],
            cwd=ROOT,
            env=os.environ | ENVIRONMENT,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise SystemExit(f"{name} {arguments}: {done.returncode}\n{done.stderr[-3000:]}")
        found: Result = json.loads(Path(result.name).read_text())
        return found


def compare(tasks: Mapping[str, Task], rounds: int) -> dict[str, Result]:
    """Times of several tasks, measured in turn in one process: medians over the rounds.

    Whatever else the machine did hit all of them alike.
    """
    found = run(("times", {"tasks": tasks, "rounds": rounds}))
    return {name: median(results) for name, results in found.items()}


def interleave(tasks: Mapping[str, Task], rounds: int) -> dict[str, Result]:
    """The same with a process for every single run, as memory and imports need it."""
    found: dict[str, list[Result]] = {name: [] for name in tasks}
    for _ in range(rounds):
        for name, task in tasks.items():
            found[name].append(run(task))
    return {name: median(results) for name, results in found.items()}


def median(results: list[Result]) -> Result:
    """The median of each number."""
    return {
        key: value
        if isinstance(value, bool | str)
        else round(statistics.median(result[key] for result in results), 4)
        for key, value in results[0].items()
    }
