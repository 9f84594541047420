"""Builds on a ``concurrent.futures.Executor``: threads, processes here, or a cluster's.

A build that ends the process that it runs in is an error of its partition. Where that breaks a
pool, what is not built yet is built in an isolated process, one engine after the other.

Threads of this process are handed the request itself. Everything else gets a plain value
(``trt_et.scheduler.worker``) and a scratch folder, which holds the weights and takes the engines.
It is removed in any case; that it is gone also tells builds that still run to stop.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import logging
import os
import shutil
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

from crc32c import crc32c

from trt_et.cache.fingerprint import has_foreign_converters
from trt_et.errors import BuilderError, OptionError
from trt_et.graph.tracing import TRACING
from trt_et.scheduler.build_runner import BuildJob, BuildRunner
from trt_et.scheduler.isolated_process import IsolatedProcess, ProcessEnded
from trt_et.scheduler.weights_file import WeightsWriter
from trt_et.scheduler.worker import BuildResult, build_in_worker
from trt_et.scheduler.worker_request import pack_request

__all__ = ["InProcesses", "InThreads", "make_runner"]

_log = logging.getLogger(__name__)


def make_runner(
    executor: Executor | None,
    scratch: str | os.PathLike[str] | None = None,
    *,
    isolated: bool = False,
) -> BuildRunner | None:
    """Where builds run; None: here, one after the other.

    Args:
        executor: The caller's choice.
        scratch: See :class:`InProcesses`.
        isolated: Whether a build that ends its process must not end this one.

    Raises:
        OptionError: It is no ``concurrent.futures.Executor``, its processes are forks, or it is
            threads, which are not isolated.
    """
    folder = None if scratch is None else Path(scratch)
    if executor is None:
        return InProcesses(IsolatedProcess(), folder) if isolated else None
    if not isinstance(executor, Executor):
        raise OptionError(
            f"executor is {type(executor).__name__}; expected a concurrent.futures.Executor, such "
            "as ProcessPoolExecutor, ThreadPoolExecutor or Dask's Client.get_executor()"
        )
    if isinstance(executor, ThreadPoolExecutor):
        if isolated:
            raise OptionError(
                "executor is a ThreadPoolExecutor, and on_crash is given: a build that crashes in "
                "a thread ends this process. Leave executor out, or use a ProcessPoolExecutor"
            )
        return InThreads(executor)
    context = getattr(executor, "_mp_context", None)
    is_pool = isinstance(executor, ProcessPoolExecutor)
    if is_pool and context is not None and context.get_start_method() == "fork":
        # Threads (torch's, TensorRT's, OpenMP's) do not survive a fork; their locks do.
        raise OptionError(
            "executor's processes would be forks of this one, in which torch can hang; use "
            "ProcessPoolExecutor(mp_context=multiprocessing.get_context('spawn'))"
        )
    return InProcesses(executor, folder)


class _OnExecutor(ABC):
    """Submits all jobs, and yields engines as they come."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    def run(self, jobs: Iterable[BuildJob]) -> Iterator[tuple[BuildJob, bytes]]:
        """See :class:`trt_et.scheduler.build_runner.BuildRunner`; ends with the first failure."""
        waiting: dict[Future[Any], BuildJob] = {}
        source = iter(jobs)
        with self._open_scratch() as scratch:
            try:
                while True:
                    with TRACING:  # The next partition is lowered.
                        job = next(source, None)
                    if job is None:
                        break
                    waiting[self._submitted(job, scratch)] = job
                    del job
                    yield from self._finished(waiting, scratch, timeout=0)
                while waiting:
                    yield from self._finished(waiting, scratch, timeout=None)
            finally:
                for future, job in waiting.items():
                    future.cancel()
                    job.request.monitor.cancel()

    def _finished(
        self,
        waiting: dict[Future[Any], BuildJob],
        scratch: Any,  # noqa: ANN401
        timeout: float | None,
    ) -> Iterator[tuple[BuildJob, bytes]]:
        first = concurrent.futures.FIRST_COMPLETED
        for future in concurrent.futures.wait(waiting, timeout, first).done:
            job = waiting[future]
            try:
                blob = self._blob(future, scratch)
            except BrokenProcessPool as error:
                self._replace_executor(job, scratch, error)
                del waiting[future]
                waiting[self._submitted(job, scratch)] = job
                continue
            except ProcessEnded as error:
                raise job.crashed(str(error)) from error
            except concurrent.futures.CancelledError as error:
                raise job.failed(BuilderError("its build was cancelled by the executor")) from error
            except Exception as error:
                # A builder may be anybody's: whatever it raises is reported with the partition.
                failure = job.failed(error)
                raise failure from (error.__cause__ if failure is error else error)
            del waiting[future]
            yield job, blob
            del job, blob

    def _submitted(self, job: BuildJob, scratch: Any) -> Future[Any]:  # noqa: ANN401
        try:
            return self._submit(job, scratch)
        except BrokenProcessPool as error:
            self._replace_executor(job, scratch, error)
            return self._submit(job, scratch)
        except Exception as error:
            raise job.failed(error) from error

    @contextlib.contextmanager
    def _open_scratch(self) -> Iterator[Any]:
        yield None

    @abstractmethod
    def _submit(self, job: BuildJob, scratch: Any) -> Future[Any]: ...  # noqa: ANN401

    @abstractmethod
    def _blob(self, future: Future[Any], scratch: Any) -> bytes: ...  # noqa: ANN401

    def _replace_executor(self, job: BuildJob, scratch: Any, error: Exception) -> None:  # noqa: ANN401
        raise job.failed(error) from error


class InThreads(_OnExecutor):
    """Builds in threads of this process; TensorRT works outside of Python's lock."""

    def _submit(self, job: BuildJob, scratch: Any) -> Future[Any]:  # noqa: ANN401
        return self._executor.submit(job.builder.build, job.request)

    def _blob(self, future: Future[Any], scratch: Any) -> bytes:  # noqa: ANN401
        blob: bytes = future.result()
        return blob


class _Scratch:
    """A folder for the requests of one export."""

    def __init__(self, parent: Path | None) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="trt-et-", dir=parent))
        self.weights = WeightsWriter(self.folder / "weights")
        self.partitions: dict[str, str] = {}

    def being_built(self) -> list[str]:
        """The partitions that a worker began and did not finish."""
        begun = {path.name.partition(".")[0] for path in self.folder.glob("*.part")}
        return [name for engine, name in self.partitions.items() if engine in begun]

    def remove(self) -> None:
        """Remove it, even while workers still write to it."""
        with contextlib.suppress(OSError):
            self.weights.close()
        gone = self.folder.with_name(f"{self.folder.name}.removed")
        try:
            # At once: nothing can be added to it by its name any more.
            self.folder.rename(gone)
        except OSError:
            gone = self.folder
        shutil.rmtree(gone, ignore_errors=True)


class InProcesses(_OnExecutor):
    """Builds in other processes, here or on machines that share a folder with this one.

    Args:
        executor: Runs :func:`trt_et.scheduler.worker.build_in_worker`.
        scratch: Where to make the scratch folder; None: where temporary files go.
    """

    def __init__(self, executor: Executor, scratch: Path | None = None) -> None:
        super().__init__(executor)
        self._parent = scratch

    @contextlib.contextmanager
    def _open_scratch(self) -> Iterator[_Scratch]:
        try:
            scratch = _Scratch(self._parent)
        except OSError as error:
            raise OptionError(
                f"no scratch folder can be made in {self._parent or tempfile.gettempdir()}: "
                f"{error}; choose another one (scratch=...)"
            ) from error
        try:
            yield scratch
        finally:
            scratch.remove()

    def _submit(self, job: BuildJob, scratch: _Scratch) -> Future[Any]:
        if isinstance(self._executor, IsolatedProcess) and has_foreign_converters():
            raise BuilderError(
                "converters are registered in this process that an isolated one does not have; "
                "build in this one (executor=None, on_crash=None)"
            )
        engine = f"engine{len(scratch.partitions)}"
        scratch.partitions[engine] = job.request.partition
        request = pack_request(job.builder, job.request, scratch.weights, scratch.folder / engine)
        return self._executor.submit(build_in_worker, request)

    def _blob(self, future: Future[Any], scratch: _Scratch) -> bytes:
        result: BuildResult = future.result()
        if result.error:
            raise result.exception()
        try:
            blob = Path(result.path).read_bytes()
        except OSError as error:
            raise BuilderError(
                f"its engine was built, but is not in {scratch.folder} as this machine sees it "
                f"({error}); machines that build for each other need a folder that all of them "
                "share (scratch=...)"
            ) from error
        if (len(blob), crc32c(blob)) != (result.size, result.checksum):
            raise BuilderError(
                f"its engine arrived damaged: {len(blob)} bytes, {result.size} were written"
            )
        Path(result.path).unlink()
        return blob

    def _replace_executor(self, job: BuildJob, scratch: _Scratch, error: Exception) -> None:
        """Go on in an isolated process: it says which build of several crashes, if one does."""
        if isinstance(self._executor, IsolatedProcess):
            return
        begun = scratch.being_built()
        if not begun:
            raise job.failed(
                BuilderError(
                    "a process of the executor died before it built anything. A script that uses "
                    'ProcessPoolExecutor must do its work under `if __name__ == "__main__":`, '
                    "because each process imports the script; otherwise, was it killed, or out of "
                    "memory?"
                )
            ) from error
        _log.warning(
            "a process of the executor died while it built %s; what is not built yet is built in "
            "an isolated process, one partition after the other",
            " and ".join(begun),
        )
        self._executor = IsolatedProcess()
