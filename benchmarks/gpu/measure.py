"""Ours for all models, then eager for all, then ``torch.compile`` for all; kept after each."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from importlib import metadata
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from benchmarks.gpu.ways import WAYS
from benchmarks.gpu.workers import Result, Worker

_PACKAGES = ("torch", "torchvision", "timm", "transformers", "triton")
_TIMING_S = 0.5  # Of a model, after the last way is prepared.
_NOT_RUN: Result = {"error": "not run: the deadline was over"}


@dataclass(frozen=True)
class Plan:
    """What to measure.

    Attributes:
        seconds_per_model: The longest that a way of a model may take.
        deadline: On the clock of ``time.monotonic``; ways are not run after it.
    """

    folder: Path
    output: Path
    probe: Path
    device: str
    rounds: int
    names: tuple[str, ...]
    seconds_per_model: float
    deadline: float

    def seconds_left(self) -> float:
        return max(0.0, min(self.seconds_per_model, self.deadline - time.monotonic()))


class _Results:
    """The file of results, complete whenever the machine is taken away."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._found: dict[str, Any] = {
            "machine": _machine(),
            "command": ["python", "-m", "benchmarks.gpu", *sys.argv[1:]],
            "models": {},
        }

    def add(self, name: str, way: str, result: Result) -> None:
        self._found["models"].setdefault(name, {})[way] = result
        new = self._path.with_suffix(".new")
        new.write_text(json.dumps(self._found, indent=2) + "\n")
        new.replace(self._path)
        sys.stdout.write(f"{name} {way}: {result}\n")
        sys.stdout.flush()


def measure(plan: Plan) -> None:
    """Write the file of results; what fails is a text under ``error``."""
    results = _Results(plan.output)
    for name in plan.names:
        results.add(name, "ours", _ours(plan, plan.folder / f"{name}.pte"))
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # All models compile at once.
    workers = {name: Worker(name, plan.device, plan.rounds) for name in plan.names}
    for way in WAYS:
        prepared = _prepare(plan, way, workers)
        for name, result in prepared.items():
            if "error" not in result:
                workers[name].ask(None)
                result |= workers[name].answer(plan.seconds_per_model)
            results.add(name, way, result)
    for worker in workers.values():
        worker.end()


def _ours(plan: Plan, program: Path) -> Result:
    """``load_us``, ``queued_us`` and ``done_us``, as the probe prints them."""
    if not plan.seconds_left():
        return _NOT_RUN
    command = [str(plan.probe), "times", str(program), str(plan.rounds)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=plan.seconds_left(), check=False
        )
        if done.returncode != 0:
            return {"error": f"the probe ended with {done.returncode}: {done.stderr[-400:]}"}
        lines = (line.split() for line in done.stdout.splitlines())
        found = {words[0]: float(words[1]) for words in lines if len(words) == 2}
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        return {"error": f"{type(error).__name__}: {error}"}
    return found if "done_us" in found else {"error": f"no done_us in {done.stdout[-400:]!r}"}


def _prepare(plan: Plan, way: str, workers: dict[str, Worker]) -> dict[str, Result]:
    """Prepare a way of all models at once; nothing is timed meanwhile."""
    limit = plan.seconds_left() - _TIMING_S * len(workers)
    if limit <= 0:
        return {name: dict(_NOT_RUN) for name in workers}
    until = time.monotonic() + limit
    for worker in workers.values():
        worker.ask(way)
    pending = [worker.pipe for worker in workers.values()]
    while pending and (left := until - time.monotonic()) > 0:
        ready = wait(pending, left)
        pending = [pipe for pipe in pending if pipe not in ready]
    return {name: worker.answer(0) for name, worker in workers.items()}


def _machine() -> dict[str, Any]:
    ask = ["nvidia-smi", "--query-gpu=name,driver_version,compute_cap", "--format=csv,noheader"]
    try:
        gpu = subprocess.run(ask, capture_output=True, text=True, timeout=20, check=True)
        found = gpu.stdout.strip()
    except (OSError, subprocess.SubprocessError) as error:
        found = f"{type(error).__name__}: {error}"
    versions: dict[str, str | None] = {}
    for name in _PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = None
    return {
        "gpu, driver, compute capability": found,
        "cores": len(os.sched_getaffinity(0)),
        "python": sys.version.split()[0],
        "versions": versions,
    }
