"""Runs builds: in this process, or on a ``concurrent.futures.Executor``.

Threads get the request itself. A process gets the path of a file with the partition's program and
weights, and returns the engine's blob. The file's folder is removed when the export ends; builds
that still run notice it and stop.

A build that ends its process breaks a pool. The lost builds are then repeated in a new process, one
at a time: if that process also ends, the crashing partition is known.
"""

from __future__ import annotations

import concurrent.futures
import copy
import logging
import multiprocessing
import operator
import os
import platform
import signal
import tempfile
import time
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx.experimental.symbolic_shapes import free_symbols

from trt_et import errors
from trt_et.engines.base import BuildRequest, EngineBuilder
from trt_et.engines.job import Job
from trt_et.engines.progress import BuildMonitor
from trt_et.errors import BuildCrashed, BuilderError, OptionError
from trt_et.graph.tracing import TRACING, unchanged_by_tracing

_log = logging.getLogger(__name__)


def checked_executor(executor: Executor | None) -> Executor | None:
    """Check the partitioner's option.

    Raises:
        OptionError: It is no ``concurrent.futures.Executor``, or its processes are forks.
    """
    if executor is not None and not isinstance(executor, Executor):
        raise OptionError(
            f"executor is {type(executor).__name__}; expected a concurrent.futures.Executor, such "
            "as ProcessPoolExecutor, ThreadPoolExecutor or Dask's Client.get_executor()"
        )
    context = getattr(executor, "_mp_context", None)  # None: its processes are not forks.
    if (
        isinstance(executor, ProcessPoolExecutor)
        and context
        and context.get_start_method() == "fork"
    ):
        # Threads (torch's, TensorRT's, OpenMP's) do not survive a fork; their locks do.
        raise OptionError(
            "executor's processes would be forks of this one, in which torch can hang; use "
            "ProcessPoolExecutor(mp_context=multiprocessing.get_context('spawn'))"
        )
    return executor


def build_all(
    executor: Executor | None, jobs: Iterable[Job]
) -> Generator[tuple[Job, bytes], None, None]:
    """Build every job and yield it with its engine's blob, in any order.

    Without an executor each partition is lowered, built and dropped before the next one. With one,
    all jobs are submitted at once. When this generator is closed or raises, its builds are stopped.

    Raises:
        PartitionError: A build failed; the others are cancelled.
        BuildCrashed: A build ended its process.
    """
    if executor is None:
        yield from _build_here(jobs)
        return
    source = iter(jobs)
    builds = _Builds(executor)
    waiting: dict[Future[bytes], Job] = {}
    try:
        while True:
            with TRACING:  # The next partition is lowered.
                job = next(source, None)
            if job is None:
                break
            waiting[builds.submit(job)] = job
            yield from _finished(builds, waiting, timeout=0)
        while waiting:
            yield from _finished(builds, waiting, timeout=None)
    finally:
        for future, job in waiting.items():
            future.cancel()
            job.request.monitor.cancel()
        builds.close()


def _build_here(jobs: Iterable[Job]) -> Iterator[tuple[Job, bytes]]:
    for job in jobs:
        try:
            with unchanged_by_tracing(job.request.program.exported.graph.nodes):
                blob = job.builder.build(job.request)
        except Exception as error:
            # A caller's builder may raise any type; the report names the partition.
            raise job.failed(error) from error
        yield job, blob
        del blob  # Free its memory before the next partition is lowered.


def _finished(
    builds: _Builds, waiting: dict[Future[bytes], Job], timeout: float | None
) -> Iterator[tuple[Job, bytes]]:
    first = concurrent.futures.FIRST_COMPLETED
    for future in concurrent.futures.wait(waiting, timeout, first).done:
        job = waiting[future]
        try:
            try:
                blob = future.result()
            except BrokenProcessPool as error:
                blob = builds.repeat(job, error)
        except concurrent.futures.CancelledError as error:
            raise job.failed(BuilderError("its build was cancelled by the executor")) from error
        except Exception as error:
            failure = job.failed(error)
            raise failure from (error.__cause__ if failure is error else error)
        del waiting[future]
        yield job, blob
        del blob


class _Builds:
    """The builds of one export on an executor."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._own: ProcessPoolExecutor | None = None
        self._folder = tempfile.TemporaryDirectory(prefix="trt-et-", ignore_cleanup_errors=True)

    def close(self) -> None:
        self._folder.cleanup()  # Builds that still run notice it, and stop.
        if self._own is not None:
            self._own.shutdown()

    def submit(self, job: Job) -> Future[bytes]:
        try:
            if isinstance(self._executor, ThreadPoolExecutor):
                return self._executor.submit(job.builder.build, job.request)
            return self._executor.submit(*self._call(job))
        except BrokenProcessPool as error:
            lost: Future[bytes] = Future()
            lost.set_exception(error)
            return lost
        except Exception as error:
            raise job.failed(error) from error

    def repeat(self, job: Job, error: BrokenProcessPool) -> bytes:
        """Repeat, in a new process, a build that the executor lost when its process died."""
        _log.warning(
            "a process of the executor died; partition %s is built again, in a new process",
            job.name,
        )
        pool = self._own = self._own or _start(error)
        processes = list(pool._processes.values())
        try:
            again: Future[bytes] = pool.submit(*self._call(job))
            return again.result()
        except BrokenProcessPool as broken:
            raise BuildCrashed(
                f"builder {job.builder.name!r} ended its process ({_how_it_ended(processes)}) on "
                f"{job.describe()}. excluded_ops=[...] takes the names of these operators, and "
                "leaves them to the CPU"
            ) from broken

    def _call(self, job: Job) -> tuple[Any, ...]:
        """Return what to submit: a function and its arguments."""
        program = job.request.program
        file = Path(tempfile.mkdtemp(dir=self._folder.name)) / "program.pt2"
        try:
            save_program(program.exported, file)
        except Exception as error:
            # torch.export.save raises many types; the disk may be full.
            raise BuilderError(
                f"it cannot be sent to another process through {file.parent}: "
                f"{type(error).__name__}: {error}; build in this one (executor=None), or set "
                "TMPDIR to a folder with more room"
            ) from error
        shell = replace(program, exported=None, sources={})  # type: ignore[arg-type]
        request = replace(job.request, program=shell, monitor=BuildMonitor())
        return build_in_worker, str(file), job.builder, request, _versions()


def _start(error: BrokenProcessPool) -> ProcessPoolExecutor:
    pool = ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"))
    try:
        pool.submit(os.getpid).result()
    except BrokenProcessPool:
        raise BuilderError(
            "a process of the executor died before it built anything. A script that uses "
            'ProcessPoolExecutor must do its work under `if __name__ == "__main__":`, '
            "because each process imports the script"
        ) from error
    return pool


def _how_it_ended(processes: list[Any]) -> str:
    (process,) = processes
    process.join()
    # The pool's own thread also waits for the process: the one of the two that the system answers
    # knows the status a moment before the other.
    deadline = time.monotonic() + 1
    while process.exitcode is None and time.monotonic() < deadline:
        time.sleep(0.01)
    code = process.exitcode or 0
    how = signal.Signals(-code).name if code < 0 else f"exit status {code}"
    return f"{how}, which the kernel sends if memory runs out" if how == "SIGKILL" else how


def build_in_worker(
    file: str, builder: EngineBuilder, request: BuildRequest, versions: dict[str, str]
) -> bytes:
    """Build an engine in a worker process.

    Args:
        file: The partition's program and weights.
        builder: Builds the engine.
        request: The request without its program.
        versions: The libraries' versions in the process that exports.

    Raises:
        TrtEtError: The build failed, or this machine cannot build for the other.
    """
    path = Path(file)
    for name, own in _versions().items():
        if own != versions[name]:
            raise BuilderError(
                f"{name} is {own} on {platform.node()}, but {versions[name]} in the process that "
                "exports; install the same versions on all machines that build"
            )
    if not path.exists():
        raise BuilderError(
            f"{path} does not exist on {platform.node()}: machines that build for each other need "
            "a folder that all of them share (set TMPDIR to it), and the export must still run"
        )
    try:
        program = replace(request.program, exported=load_program(path))
        monitor = BuildMonitor(stop=lambda: not path.exists())
        return builder.build(replace(request, program=program, monitor=monitor))
    except Exception as error:
        is_own = type(error) is getattr(errors, type(error).__name__, None)
        reason = f"{type(error).__name__}: {error}"
        failure = error if is_own else BuilderError(reason).with_traceback(error.__traceback__)
    # An exception of another package may not survive a pickle. Dask installs tblib, which also
    # pickles causes.
    failure.__cause__ = failure.__context__ = None
    raise failure


def _versions() -> dict[str, str]:
    return {"torch": str(torch.__version__), "executorch": version("executorch")}


def save_program(program: ExportedProgram, file: Path) -> None:
    """Write a program with its weights (``torch.export.save``)."""
    values = [node.meta.get("val") for node in program.graph.nodes]
    used = free_symbols([value for value in values if value is not None])
    shell = copy.copy(program)
    # Other symbols, of the program that this one was cut out of, would be warned of.
    shell._range_constraints = {s: r for s, r in program.range_constraints.items() if s in used}
    torch.export.save(shell, file)


def load_program(file: Path) -> ExportedProgram:
    """Read a program with the nodes that it was saved with, by name and in order.

    ``torch.export.load`` gives every output of a node a ``getitem``, used or not.
    """
    program: ExportedProgram = torch.export.load(file)
    for node in reversed(program.graph.nodes):
        if node.target is operator.getitem and not node.users:
            program.graph.erase_node(node)
    return program
