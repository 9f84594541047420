"""What runs in a worker process: builds one engine and writes it beside its weights."""

from __future__ import annotations

import os
import platform
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path

from crc32c import crc32c

import trt_et.errors
from trt_et.builders.registry import make_builder
from trt_et.errors import BuilderError
from trt_et.scheduler.worker_request import WorkerRequest, unpack_request

__all__ = ["BuildResult", "build_in_worker"]


@dataclass(frozen=True)
class BuildResult:
    """What became of a request; either an engine's file or an error.

    Exceptions of other people's builders may not survive a pickle, so errors travel as text.

    Attributes:
        path: The engine's blob; empty where there is none.
        size: Its bytes.
        checksum: Its CRC-32C.
        seconds: How long the build took.
        error: Name of the exception's class; empty where there was none.
        message: What it said.
        trace: Its traceback.
    """

    path: str = ""
    size: int = 0
    checksum: int = 0
    seconds: float = 0.0
    error: str = ""
    message: str = ""
    trace: str = field(default="", repr=False)

    def exception(self) -> Exception:
        """The exception that it describes."""
        kind = getattr(trt_et.errors, self.error, None)
        if isinstance(kind, type) and issubclass(kind, trt_et.errors.TrtEtError):
            error: Exception = kind(self.message)
        else:
            error = BuilderError(f"{self.error}: {self.message}")
        error.__cause__ = _RemoteTraceback(self.trace)
        return error


class _RemoteTraceback(Exception):
    """Shows the worker's traceback above ours."""

    def __str__(self) -> str:
        return f"in the process that built it:\n\n{self.args[0]}"


def build_in_worker(request: WorkerRequest) -> BuildResult:
    """Build an engine and write it to ``request.engine``, all of it or nothing; never raises.

    Runs in worker processes: it is found by its name, and needs nothing of the process that asked.
    """
    start = time.perf_counter()
    # A second worker may be given the same request, where a scheduler believes the first one dead.
    part = Path(f"{request.engine}.{platform.node()}.{os.getpid()}.part")
    try:
        builder = make_builder(request.builder)
        with part.open("xb") as file:
            blob = builder.build(unpack_request(request))
            if not isinstance(blob, bytes):
                raise BuilderError(
                    f"it returned {type(blob).__name__}, not the bytes of an engine blob"
                )
            file.write(blob)
        part.replace(request.engine)
    except Exception as error:
        # Whatever a builder raises goes back as text.
        return _failed(error, time.perf_counter() - start)
    finally:
        part.unlink(missing_ok=True)
    seconds = time.perf_counter() - start
    return BuildResult(request.engine, len(blob), int(crc32c(blob)), seconds)


def _failed(error: Exception, seconds: float = 0.0) -> BuildResult:
    return BuildResult(
        seconds=seconds,
        error=type(error).__name__,
        message=str(error),
        trace="".join(traceback.format_exception(error)),
    )
