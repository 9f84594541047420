"""From a build request to the bytes of a TensorRT engine; shared by the TensorRT builders."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from trt_et.builders.base import BuildRequest
from trt_et.builders.monitor import BuildMonitor, interruptible
from trt_et.conversion.network import Network, convert_partition
from trt_et.conversion.torch_tensorrt_import import logged_errors
from trt_et.errors import BuilderError

__all__ = ["build_network", "serialize"]


def build_network(request: BuildRequest, library: str = "tensorrt") -> Network:
    """Fill a TensorRT network with a request's partition.

    Args:
        request: The partition; its placeholders become the network's inputs, by name.
        library: The engine library, by its builder's name; some rewrites are for one alone.

    Raises:
        OptionError: A setting is unknown.
        BuilderError: A converter failed, or the network's inputs and outputs are not the
            partition's.
    """
    return convert_partition(request.partition, request.lowered, request.options, library)


def serialize(
    network: Network,
    partition: str,
    write: Callable[[bytes | memoryview], int],
    monitor: BuildMonitor | None = None,
    device: Callable[[], AbstractContextManager[Any]] = nullcontext,
) -> None:
    """Build the engine of a network and write its bytes, in pieces where this TensorRT can stream.

    Ctrl-C, and ``monitor``, stop it at TensorRT's next step.

    Args:
        network: The network.
        partition: The partition's name, for messages.
        write: Gets the pieces in order; what it raises ends the build and is raised here.
        monitor: Follows the build.
        device: Entered by the thread that builds; chooses its GPU.

    Raises:
        BuilderError: TensorRT built no engine.
        BuildCancelled: The monitor stopped it.
    """
    from trt_et.builders.tensorrt_monitor import TensorRTMonitor

    monitor = monitor or BuildMonitor()
    monitor.check()
    listener = TensorRTMonitor(monitor)  # TensorRT does not keep it alive.
    network.config.progress_monitor = listener
    built = False

    def build() -> None:
        nonlocal built
        with device():
            built = _build(network, write)

    with logged_errors() as errors:
        interruptible(build, monitor.cancel)
    monitor.check()
    if not built:
        raise BuilderError(
            f"TensorRT built no engine for partition {partition}: "
            + (errors[0] if errors else "it logged no error")
        )


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
