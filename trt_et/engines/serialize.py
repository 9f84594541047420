"""Builds engines: the common part of the builders of TensorRT and TensorRT-RTX."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

from trt_et.conversion.network import Network, convert_partition
from trt_et.conversion.torch_tensorrt_import import logged_errors
from trt_et.engines.base import BuildRequest
from trt_et.engines.progress import BuildMonitor
from trt_et.errors import BuildCancelled, BuilderError, BuilderUnavailable, OptionError

_log = logging.getLogger(__name__)


def build_engine(
    request: BuildRequest,
    fill: Callable[[BuildRequest], Network],
    build: Callable[[Network], bytes],
) -> bytes:
    """Build an engine; if TensorRT fails with updates in place, build it again without them.

    Args:
        request: The partition. Its ``aliased_outputs`` may be written in place.
        fill: Fills a network with the partition.
        build: Builds a network and returns the engine's blob.

    Raises:
        BuilderError: TensorRT cannot build it either way.
    """
    network: Network | None = None
    try:
        network = fill(request)
        return build(network)
    except (BuildCancelled, BuilderUnavailable, OptionError):
        raise
    except Exception as error:
        # After any error: a program that builds without updates in place is exported.
        if not (request.program.aliased_outputs if network is None else network.aliases):
            raise
        _log.warning(
            "partition %s: no engine that writes state in place (%s); building one that does not",
            request.partition,
            error,
        )
    if network is not None:
        network.free()
    program = replace(request.program, aliased_outputs=())
    return build(fill(replace(request, program=program)))


def build_network(request: BuildRequest, library: str = "tensorrt") -> Network:
    """Fill a TensorRT network with a request's partition.

    Args:
        request: The partition; its placeholders become the network's inputs, by name.
        library: The engine library, by its builder's name; some rewrites are for one alone.

    Raises:
        OptionError: A setting is unknown.
        BuilderError: A converter failed, or the network has other inputs and outputs than the
            partition.
    """
    return convert_partition(request.partition, request.program, request.options, library)


def serialize(
    network: Network,
    partition: str,
    write: Callable[[bytes | memoryview], int],
    monitor: BuildMonitor | None = None,
    device: Callable[[], AbstractContextManager[Any]] = nullcontext,
) -> None:
    """Build the engine of a network and write its bytes, in pieces if this TensorRT can stream.

    Ctrl-C, and ``monitor``, stop it at TensorRT's next step.

    Args:
        network: The network.
        partition: The partition's name, for messages.
        write: Gets the pieces in order; its exceptions end the build and are raised here.
        monitor: Follows the build.
        device: Entered by the thread that builds; chooses its GPU.

    Raises:
        BuilderError: TensorRT built no engine.
        BuildCancelled: The monitor stopped it.
    """
    monitor = monitor or BuildMonitor()
    monitor.check()
    listener = _progress_monitor(network.trt, monitor)  # TensorRT does not keep it alive.
    network.config.progress_monitor = listener

    def build() -> bool:
        with device():
            return _build(network, write)

    with logged_errors() as errors:
        built = interruptible(build, monitor.cancel)
    monitor.check()
    if not built:
        raise BuilderError(
            f"TensorRT built no engine for partition {partition}: "
            + (errors[0] if errors else "it logged no error")
            + ". Leave the operator that it names, or this partition's, to the CPU "
            "(excluded_ops=...)"
        )


def interruptible(function: Callable[[], bool], cancel: Callable[[], None]) -> bool:
    """Return the result of a function that stays in C++ for long; Ctrl-C can interrupt it.

    Python raises ``KeyboardInterrupt`` in the main thread once that thread runs Python code. So
    another thread calls the function, and the main thread waits. An interrupt calls ``cancel`` and
    is raised when the function has returned; a second interrupt does not wait.

    Args:
        function: The function. Its exceptions are raised here.
        cancel: Makes the function return early.
    """
    if threading.current_thread() is not threading.main_thread():
        return function()
    done: Future[bool] = Future()

    def work() -> None:
        try:
            done.set_result(function())
        except BaseException as error:
            # Raised in the thread that asked, below.
            done.set_exception(error)

    try:
        # An interrupt may come as soon as the thread runs.
        threading.Thread(target=work, name="trt-et build", daemon=True).start()
        done.exception()
    except BaseException:
        cancel()
        done.exception()
        raise
    return done.result()


def _progress_monitor(trt: Any, monitor: BuildMonitor) -> Any:  # noqa: ANN401
    class ProgressMonitor(trt.IProgressMonitor):
        """Passes TensorRT's phases on; TensorRT calls these names."""

        def __init__(self) -> None:
            trt.IProgressMonitor.__init__(self)  # pybind11 needs its own, not super().

        def phase_start(self, *phase: Any) -> None:  # noqa: ANN401
            monitor.phase_start(*phase)

        def step_complete(self, *step: Any) -> bool:  # noqa: ANN401
            return monitor.step_complete(*step)

        def phase_finish(self, phase: str) -> None:
            monitor.phase_finish(phase)

    return ProgressMonitor()


def _build(network: Network, write: Callable[[bytes | memoryview], int]) -> bool:
    if hasattr(network.trt, "IStreamWriter"):
        return _stream(network, write)
    host = network.builder.build_serialized_network(network.network, network.config)
    if host is not None:
        write(memoryview(host).cast("B"))
    return host is not None


def _stream(network: Network, write: Callable[[bytes | memoryview], int]) -> bool:
    failures: list[BaseException] = []

    class Writer(network.trt.IStreamWriter):  # type: ignore[name-defined]
        def write(self, piece: bytes) -> int:
            try:
                return 0 if failures else write(piece)
            except BaseException as error:
                # Nothing may be thrown through TensorRT, Ctrl-C included.
                failures.append(error)
                return 0

    built = network.builder.build_serialized_network_to_stream(
        network.network, network.config, Writer()
    )
    if failures:
        raise failures[0]
    return bool(built)
