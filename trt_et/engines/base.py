"""The interface of builders: a request, and the blob that a builder returns."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from trt_et.engines.monitor import BuildMonitor
from trt_et.options import BuildOptions

if TYPE_CHECKING:
    from trt_et.engine_program.lowered_partition import LoweredPartition


@dataclass(frozen=True)
class BuildRequest:
    """One engine to build.

    Attributes:
        partition: The partition's name, for messages.
        lowered: The partition in plain ATen, with its bindings.
        device_id: Index of the GPU that the engine is for.
        options: The caller's options.
        timings: A folder for the builder's timing cache; None: no timing cache.
        monitor: Takes the builder's progress, and can stop the build.
    """

    partition: str
    lowered: LoweredPartition
    device_id: int
    options: BuildOptions
    timings: Path | None = None
    monitor: BuildMonitor = field(default_factory=BuildMonitor, compare=False, repr=False)


@runtime_checkable
class EngineBuilder(Protocol):
    """Builds one engine for one partition.

    If its engines may be cached, a builder also has ``fingerprint() -> str``: everything that
    decides the engine except the request, such as library versions. It should not import those
    libraries. Engines of a builder without the method, or with an empty string, are not cached.

    A builder may have ``check_options(options: BuildOptions) -> None``, which raises
    ``OptionError`` for options that it cannot fulfil. The partitioner calls it when it is made.

    A builder may have ``make_support_check(options: BuildOptions) -> SupportCheck``, which replaces
    the check by Torch-TensorRT's converters. Its answers are remembered under the fingerprint.

    A builder may have ``named_data(lowered: LoweredPartition, blob: bytes)``, which returns the
    tensors that its blob refers to, by key. They are stored beside the blobs, each once.

    A builder may have ``verified = True``: the backend then does not compute the checksum of a blob
    again that this process has just built.

    A builder may have ``without_int8``, the operators that its library has no int8 kernels for. The
    partitioner warns of the quantized calls of these.
    """

    @property
    def name(self) -> str:
        """Return the builder's name, for the blob and for messages."""

    def build(self, request: BuildRequest) -> bytes:
        """Return the engine's blob (``trt_et.engine_info.encode_blob``).

        Its bindings must equal ``request.lowered.bindings``, also in order; the backend checks it.

        Raises:
            BuilderError: The engine cannot be built.
        """
