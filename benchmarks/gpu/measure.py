"""Ours, then PyTorch's ways, each in two runs; the results are written after each step."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import metadata
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, Final

from benchmarks.engines.models import MODELS
from benchmarks.gpu.models import SEED, case_name, has_batch
from benchmarks.gpu.ways import WAYS
from benchmarks.gpu.workers import Result, Worker

_PACKAGES: Final = ("torch", "torchvision", "timm", "transformers", "triton")
_RUNS: Final = 2
_AT_ONCE: Final = 8  # First loads, which compile kernels on the host.
_NOT_RUN: Final[Result] = {"error": "not run: the deadline was over"}
_CLOCKS: Final = ("clocks.sm", "clocks.mem", "temperature.gpu", "power.draw", "memory.used")
OURS: Final[dict[str, dict[str, str]]] = {
    "ours": {},
    "ours_without_graphs": {"TRT_ET_CUDA_GRAPHS": "0"},
}
"""Our ways, and the variables of the probe's process."""


@dataclass(frozen=True)
class Plan:
    """What to measure.

    Attributes:
        seconds_per_step: The longest that preparing a way of all models, or a probe, may take.
        seconds_per_timing: No call is begun after these.
        deadline: On the clock of ``time.monotonic``; nothing is begun after it.
    """

    folder: Path
    output: Path
    probe: Path
    device: str
    rounds: int
    names: tuple[str, ...]
    batches: tuple[int, ...]
    ways: tuple[str, ...]
    seconds_per_step: float
    seconds_per_timing: float
    deadline: float

    def seconds_left(self) -> float:
        return max(0.0, min(self.seconds_per_step, self.deadline - time.monotonic()))

    def cases(self, batch: int, way: str | None = None) -> Iterator[tuple[str, str]]:
        """Model and case of a batch; with a way of PyTorch, of models that it is tried with."""
        only = WAYS[way].models if way is not None else None
        for name in self.names:
            if has_batch(name, batch) and (only is None or name in only):
                yield name, case_name(name, batch)


def models_in(folder: Path) -> list[str]:
    """Names of the models whose programs ``export`` wrote there, in its order."""
    found = {path.name.partition(".")[0] for path in folder.glob("*.json")}
    return [name for name in MODELS if name in found]


class _Results:
    """The file of results, complete whenever the machine is taken away."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.cases: dict[str, Any] = {}
        self._found: dict[str, Any] = {
            "machine": _machine(),
            "command": ["python", "-m", "benchmarks.gpu", *sys.argv[1:]],
            "seed": SEED,
            "clocks": [],
            "cases": self.cases,
        }

    def case(self, case: str, facts: Result) -> None:
        self.cases.setdefault(case, {"ways": {}}).update(facts)
        self._write()

    def way(self, case: str, way: str, facts: Result) -> None:
        self.cases.setdefault(case, {"ways": {}})["ways"].setdefault(way, {}).update(facts)
        self._write()
        sys.stdout.write(f"{case} {way}: {facts}\n")
        sys.stdout.flush()

    def run(self, case: str, way: str, facts: Result) -> None:
        runs = self.cases[case]["ways"].get(way, {}).get("runs", [])
        self.way(case, way, {"runs": [*runs, facts]})

    def clocks(self, after: str) -> None:
        self._found["clocks"].append({"after": after, **_ask_the_gpu(_CLOCKS)})
        self._write()

    def _write(self) -> None:
        new = self._path.with_suffix(".new")
        new.write_text(json.dumps(self._found, indent=2) + "\n")
        new.replace(self._path)


def measure(plan: Plan) -> None:
    """Write the file of results; what fails is a text under ``error``."""
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # All models compile at once.
    results = _Results(plan.output)
    workers = {name: Worker(name, plan.device) for name in plan.names}
    for batch in plan.batches:
        _describe(plan, batch, workers, results)
        _load_once(plan, batch, results)
        for run in range(_RUNS):
            for way, variables in OURS.items():
                for name, case in plan.cases(batch):
                    results.run(case, way, _probe(plan, case, results, variables))
                    if run == 0 and "error" not in results.cases[case]["ways"][way]["runs"][0]:
                        workers[name].ask("compare", batch, str(_prefix(plan, case)))
                        results.way(case, way, workers[name].answer(plan.seconds_left()))
                results.clocks(f"{way}, batch {batch}, run {run}")
            for way in plan.ways:
                _time(plan, way, batch, workers, results, first=run == 0)
                results.clocks(f"{way}, batch {batch}, run {run}")
    for worker in workers.values():
        worker.end()


def _prefix(plan: Plan, case: str) -> Path:
    return plan.output.parent / case


def _describe(plan: Plan, batch: int, workers: dict[str, Worker], results: _Results) -> None:
    """Write the inputs of all cases as files, and what they and the programs are."""

    def question(case: str) -> tuple[object, ...]:
        return "inputs", batch, str(_prefix(plan, case))

    for case, found in _ask_all(plan, list(plan.cases(batch)), workers, question).items():
        path = plan.folder / f"{case}.json"
        program = json.loads(path.read_text()) if path.is_file() else {"error": f"no {path.name}"}
        results.case(case, {**found, "program": program})


def _load_once(plan: Plan, batch: int, results: _Results) -> None:
    """Load all programs at once: TensorRT-RTX compiles and stores their kernels."""
    cases = [case for _, case in plan.cases(batch)]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        found = pool.map(lambda case: _probe(plan, case, results, {}, rounds=1), cases)
        for case, facts in zip(cases, found, strict=True):
            results.case(case, {"first_load": facts})


def _probe(
    plan: Plan, case: str, results: _Results, variables: dict[str, str], rounds: int | None = None
) -> Result:
    """What ``gpu_probe times`` prints of a program, with the case's inputs."""
    if not plan.seconds_left():
        return dict(_NOT_RUN)
    inputs = results.cases[case].get("inputs")
    if inputs is None:
        return {"error": f"no inputs: {results.cases[case].get('error')}"}
    prefix = _prefix(plan, case)
    command = [plan.probe, "times", plan.folder / f"{case}.pte", rounds or plan.rounds, prefix]
    for index, tensor in enumerate(inputs):
        command.append(f"{prefix}.in{index}.bin:{'x'.join(map(str, tensor['shape']))}")
    try:
        done = subprocess.run(
            list(map(str, command)),
            capture_output=True,
            text=True,
            timeout=plan.seconds_left(),
            check=False,
            env={**os.environ, **variables},
        )
        if done.returncode != 0:
            return {"error": f"the probe ended with {done.returncode}: {done.stderr[-400:]}"}
        lines = (line.split() for line in done.stdout.splitlines())
        found = {words[0]: float(words[1]) for words in lines if len(words) == 2}
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        return {"error": f"{type(error).__name__}: {error}"}
    return found if "done_us_p50" in found else {"error": f"no time in {done.stdout[-400:]!r}"}


def _time(
    plan: Plan, way: str, batch: int, workers: dict[str, Worker], results: _Results, *, first: bool
) -> None:
    """Prepare a way of all models at once where it is the first run, then time them in turn."""
    cases = list(plan.cases(batch, way))
    if first:
        found = _ask_all(plan, cases, workers, lambda _: ("prepare", way, batch))
        for case, facts in found.items():
            results.way(case, way, facts)
    for name, case in cases:
        if "error" in results.cases[case]["ways"][way]:
            continue
        if not plan.seconds_left():
            results.run(case, way, dict(_NOT_RUN))
            continue
        workers[name].ask("time", way, batch, plan.rounds, plan.seconds_per_timing)
        results.run(case, way, workers[name].answer(plan.seconds_left()))


def _ask_all(
    plan: Plan,
    cases: list[tuple[str, str]],
    workers: dict[str, Worker],
    question: Callable[[str], tuple[Any, ...]],
) -> dict[str, Result]:
    """Ask all workers at once; nothing is timed meanwhile."""
    if not plan.seconds_left():
        return {case: dict(_NOT_RUN) for _, case in cases}
    until = time.monotonic() + plan.seconds_left()
    for name, case in cases:
        workers[name].ask(*question(case))
    pending = [workers[name].pipe for name, _ in cases]
    while pending and (left := until - time.monotonic()) > 0:
        ready = wait(pending, left)
        pending = [pipe for pipe in pending if pipe not in ready]
    return {case: workers[name].answer(0) for name, case in cases}


def _ask_the_gpu(fields: tuple[str, ...]) -> dict[str, str]:
    ask = ["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader", "--id=0"]
    try:
        done = subprocess.run(ask, capture_output=True, text=True, timeout=20, check=True)
        return dict(zip(fields, done.stdout.strip().split(", "), strict=True))
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        return {"error": f"{type(error).__name__}: {error}"}


def _machine() -> dict[str, Any]:
    versions: dict[str, str | None] = {}
    for name in _PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = None
    return {
        "gpu": _ask_the_gpu(("name", "driver_version", "compute_cap", "clocks.max.sm")),
        "cores": len(os.sched_getaffinity(0)),
        "python": sys.version.split()[0],
        "versions": versions,
    }
