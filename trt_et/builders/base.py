"""What a builder is given, and what it returns."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from trt_et.builders.monitor import BuildMonitor
from trt_et.options import BuildOptions

if TYPE_CHECKING:
    from trt_et.lowering.lowered_partition import LoweredPartition

__all__ = ["BuildRequest", "EngineBuilder"]


@dataclass(frozen=True)
class BuildRequest:
    """One engine to build.

    Attributes:
        partition: The partition's name, for messages.
        lowered: The partition in plain ATen, with its bindings.
        device_id: Index of the GPU that the engine is for.
        options: What the caller asked for.
        timings: A folder where the builder may keep its timing cache; None: none.
        monitor: Where a builder reports its progress, and reads whether to stop.
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

    A builder whose engines may be kept in the engine cache has a method more, ``fingerprint() ->
    str``: everything besides the request that decides what :meth:`build` returns, such as library
    versions, without importing those libraries. An empty string, or no such method: not cached.
    """

    @property
    def name(self) -> str:
        """Recorded in the blob and shown to people."""

    def build(self, request: BuildRequest) -> bytes:
        """Return the engine's blob (:func:`trt_et.engine_info.encode_blob`).

        Its bindings must be those of ``request.lowered``, in that order; the backend checks them.

        Raises:
            BuilderError: The engine cannot be built.
        """
