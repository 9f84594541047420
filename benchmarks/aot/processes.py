"""Measurements in fresh processes, interleaved.

Each is a call of a function: ``-m benchmarks.aot.processes MODULE FUNCTION JSON RESULT-FILE``.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.support.native_environment import ROOT
from tests.support.native_environment import run as run_process

Result = dict[str, Any]
Task = tuple[str, dict[str, Any]]
# Bytecode is kept, as that of an installed package is.
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "PYTHONWARNINGS": "ignore",
    "PYTHONDONTWRITEBYTECODE": "",
}


def run(task: Task, module: str = "benchmarks.aot.tasks") -> Result:
    """One measurement.

    Args:
        task: A function's name and its arguments.
        module: Where the function is.

    Raises:
        SystemExit: It failed; with the end of what it said.
    """
    name, arguments = task
    with tempfile.NamedTemporaryFile(suffix=".json") as result:
        words = [module, name, json.dumps(arguments), result.name]
        command = [sys.executable, "-m", "benchmarks.aot.processes", *words]
        done = run_process(*command, folder=ROOT, env=os.environ | ENVIRONMENT, timeout=None)
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


if __name__ == "__main__":
    module, function, arguments, file = sys.argv[1:]
    result = getattr(import_module(module), function)(**json.loads(arguments))
    Path(file).write_text(json.dumps(result))
