"""Measurements, each in a process of its own (``processes.py``).

Peak memory is that of the resident set above what the imports hold: the kernel's own high-water
mark, reset (``/proc/self/clear_refs``) when everything is imported.
"""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from pathlib import Path
from typing import IO, Any
from unittest import mock

import psutil

Result = dict[str, Any]


def _resident(key: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(key))


class Peak:
    """Bytes that the resident set rose to above where it was."""

    def __init__(self) -> None:
        gc.collect()
        self._before = _resident("VmRSS:")
        Path("/proc/self/clear_refs").write_text("5")

    @property
    def bytes(self) -> int:
        return _resident("VmHWM:") - self._before


class TreePeak:
    """The same of this process and its children together, a page that they share counted once.

    Sampled (the sum of proportional set sizes), since the kernel keeps no mark of it.
    """

    def __init__(self) -> None:
        gc.collect()
        self._before = self._most = self._now()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample)
        self._thread.start()

    @staticmethod
    def _now() -> int:
        this = psutil.Process()
        tree = [this, *this.children(recursive=True)]
        return sum(process.memory_full_info().pss for process in tree)

    def _sample(self) -> None:
        while not self._stop.wait(0.02):
            self._most = max(self._most, self._now())

    def finish(self) -> int:
        self._stop.set()
        self._thread.join()
        return self._most - self._before


class Clock:
    """Wall and processor time since it was made; the latter with all threads and children."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), self._processor()

    @staticmethod
    def _processor() -> float:
        uses = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        return sum(use.ru_utime + use.ru_stime for use in uses)

    def read(self) -> Result:
        return {
            "seconds": time.perf_counter() - self._wall,
            "cpu_seconds": self._processor() - self._cpu,
        }


def export(
    model: str,
    size: float,
    backend: str,
    engine_bytes: int = 1024,
    options: dict[str, Any] | None = None,
) -> Result:
    """A model's way to a ``.pte``; the clock runs from the exported program to the written file."""
    import torch

    from benchmarks.aot.models import MODELS
    from benchmarks.aot.peers import make_partitioner

    partitioner = make_partitioner(backend, engine_bytes, options or {})
    if backend == "rtx":
        from trt_et.conversion.torch_tensorrt_import import torch_tensorrt

        torch_tensorrt()
    peak = Peak()
    torch.manual_seed(0)
    module, inputs = MODELS[model](size)
    weights = sum(p.nbytes for p in module.parameters())
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        path = Path(folder) / "program.pte"
        program = torch.export.export(module, inputs)
        with _own_share() as own:
            clock = Clock()
            write_program(path, program, partitioner)
            result = clock.read() | own
        result |= {"peak_bytes": peak.bytes, "weights_bytes": weights}
        return result | {"pte_bytes": path.stat().st_size} | _engines(path, backend)


def write_program(path: Path, program: Any, partitioner: Any, config: Any = None) -> None:
    from executorch.exir import to_edge_transform_and_lower

    manager = to_edge_transform_and_lower(program, partitioner=[partitioner], compile_config=config)
    finished = manager.to_executorch()
    with path.open("wb") as file:
        finished.write_to_file(file)


@contextlib.contextmanager
def _own_share() -> Iterator[Result]:
    """Sums up the processor time in what ExecuTorch calls of ours, builds included."""
    from trt_et.backend import TensorRTBackend
    from trt_et.partitioner import TensorRTPartitioner

    share = {"own_cpu_seconds": 0.0}

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            clock = Clock()
            try:
                return function(*args, **kwargs)
            finally:
                share["own_cpu_seconds"] += clock.read()["cpu_seconds"]

        return call

    with contextlib.ExitStack() as stack:
        for owner, name in (
            (TensorRTPartitioner, "partition"),
            (TensorRTPartitioner, "ops_to_not_decompose"),
            (TensorRTBackend, "preprocess_multimethod"),
        ):
            patched = counted(getattr(owner, name))
            stack.enter_context(mock.patch.object(owner, name, patched))
        yield share


def _engines(path: Path, backend: str) -> Result:
    if backend not in ("idle", "rtx"):
        return {}
    from trt_et.engine_info import decode_blob
    from trt_et.inspection import inspect_program

    (method,) = inspect_program(path.read_bytes())
    engines = [decode_blob(delegate.blob) for delegate in method.delegates]
    stored = {engine.info.sha256: len(engine.engine) for engine in engines}
    return {
        "partitions": len(engines),
        "stored_engines": len(stored),
        "engine_bytes": sum(stored.values()),
        "engine_bytes_of_partitions": sum(len(engine.engine) for engine in engines),
    }


def bare(model: str, size: float) -> Result:
    """The same engine without ExecuTorch; the clock runs from the exported program."""
    import executorch.exir  # noqa: F401  # What the export holds as well.
    import torch

    import trt_et.partitioner  # noqa: F401
    from benchmarks.aot.models import MODELS
    from benchmarks.aot.peers import bare_build
    from trt_et.conversion.torch_tensorrt_import import torch_tensorrt

    torch_tensorrt()
    peak = Peak()
    module, inputs = MODELS[model](size)
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        path = Path(folder) / "engine"
        program = torch.export.export(module, inputs)
        clock = Clock()
        bare_build(program, path)
        return clock.read() | {"peak_bytes": peak.bytes, "engine_bytes": path.stat().st_size}


def workers(count: int, size: float, rounds: int) -> Result:
    """A program of two engines, built here and by warm worker processes, in turn.

    Beside it, bare builds of one such engine in those processes: one alone, then ``count`` at once.

    Returns:
        Medians over the rounds, in seconds: ``builds_*`` of the engines only, ``exports_*`` of the
        way to the ``.pte``, ``bare_*`` of one bare build. ``*_alone``: one after the other.
    """
    found: dict[str, list[float]] = {}

    def note(name: str, seconds: float) -> None:
        found.setdefault(name, []).append(seconds)

    with _warm_pool(count) as pool, tempfile.TemporaryFile() as file:
        for turn in range(rounds + 1):
            seen = note if turn else (lambda _name, _seconds: None)
            now = size if turn else 1
            for how, executor in (("alone", None), ("beside", pool)):
                clock = Clock()
                seen(f"builds_{how}", _export_pair(now, executor, file))
                seen(f"exports_{how}", clock.read()["seconds"])
                gc.collect()
            for how, several in (("alone", 1), ("beside", count)):
                futures = [pool.submit(bare, "vit", now / 2) for _ in range(several)]
                for future in futures:
                    seen(f"bare_{how}", future.result()["seconds"])
    return {name: statistics.median(values) for name, values in found.items()}


def workers_memory(count: int, size: float) -> Result:
    """``peak_bytes`` of all processes together while ``count`` workers build two engines."""
    with _warm_pool(count) as pool, tempfile.TemporaryFile() as file:
        peak = TreePeak()
        _export_pair(size, pool, file)
        return {"peak_bytes": peak.finish()}


@contextlib.contextmanager
def _warm_pool(count: int) -> Iterator[Executor]:
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(count, mp_context=context) as pool:
        for future in [pool.submit(bare, "mlp", 1) for _ in range(count)]:
            future.result()
        yield pool


def _export_pair(size: float, executor: Executor | None, file: IO[bytes]) -> float:
    """Export a model of two engines, and say how long the engines took."""
    import torch
    from executorch.exir import to_edge_transform_and_lower

    import trt_et.backend
    from benchmarks.aot.models import MODELS
    from benchmarks.aot.peers import make_partitioner

    seconds = 0.0
    build_engines = trt_et.backend.build_engines

    def timed(partitions: Any) -> Any:
        nonlocal seconds
        clock = Clock()
        engines = build_engines(partitions)
        seconds = clock.read()["seconds"]
        if len({engine.info.sha256 for engine in engines}) != 2:
            raise SystemExit(f"{len(engines)} engines; two different ones were expected")
        return engines

    torch.manual_seed(0)
    module, inputs = MODELS["pair"](size)
    with torch.no_grad(), mock.patch.object(trt_et.backend, "build_engines", timed):
        program = torch.export.export(module, inputs)
        partitioner = make_partitioner("rtx", 0, {"executor": executor})
        manager = to_edge_transform_and_lower(program, partitioner=[partitioner])
        file.seek(0)
        manager.to_executorch().write_to_file(file)
    return seconds


def stage(engine_bytes: int, vendor: bool) -> Result:
    """From an engine to a ``.pte``: ours, or with Torch-TensorRT's partitioner and backend."""
    import torch

    from benchmarks.aot.models import tiny
    from benchmarks.aot.peers import make_partitioner, quick_bytes, vendor_stage

    def write(path: Path, size: int) -> None:
        if vendor:
            program, partitioner, config = vendor_stage(size)
        else:
            program, config = torch.export.export(*tiny()), None
            partitioner = make_partitioner("idle", size, {})
        write_program(path, program, partitioner, config)
        if path.stat().st_size < size:
            raise SystemExit("the engine is not in the program")

    with tempfile.TemporaryDirectory() as folder, quick_bytes():
        path = Path(folder) / "program.pte"
        write(path, 1 << 20)  # What is imported and kept on the way is not counted.
        peak, clock = Peak(), Clock()
        write(path, engine_bytes)
        return clock.read() | {"peak_bytes": peak.bytes, "pte_bytes": path.stat().st_size}


def inspect(engine_bytes: int) -> Result:
    """``trt-et inspect`` of a program with an engine of that size."""
    import torch

    from benchmarks.aot.models import tiny
    from benchmarks.aot.peers import make_partitioner

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "program.pte"
        write_program(
            path, torch.export.export(*tiny()), make_partitioner("idle", engine_bytes, {})
        )
        clock = Clock()
        command = [sys.executable, "-m", "trt_et.cli", "inspect", str(path)]
        subprocess.run(command, check=True, capture_output=True)
        return clock.read() | {"pte_bytes": path.stat().st_size}


def imports(statement: str) -> Result:
    """How long an import takes, and whether it brings TensorRT along."""
    clock = Clock()
    exec(statement, {})
    result = clock.read()
    return result | {"tensorrt": any(name.startswith("tensorrt") for name in sys.modules)}


def times(tasks: dict[str, tuple[str, Result]], rounds: int) -> Result:
    """Several tasks in this one process, in turn, ``rounds`` times after one that does not count.

    Only their times mean something here, not their peaks.
    """
    found: dict[str, list[Result]] = {name: [] for name in tasks}
    for turn in range(rounds + 1):
        for name, (task, arguments) in tasks.items():
            small = {"size": 1} if turn == 0 else {}
            result = globals()[task](**(arguments | small))
            if turn:
                found[name].append(result)
            gc.collect()
    return found
