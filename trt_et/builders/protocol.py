"""What a builder is given, and what it returns."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from trt_et.errors import OptionError

if TYPE_CHECKING:
    from trt_et.lowering import LoweredPartition

__all__ = ["BuildOptions", "BuildRequest", "EngineBuilder"]

_CAPABILITY = re.compile(r"(\d{1,2})\.(\d)")


@dataclass(frozen=True)
class BuildOptions:
    """What a caller may ask of an engine, beyond the partition itself.

    Attributes:
        compute_capabilities: Targets, such as ``("8.6", "8.9")``. Empty: the GPU at hand
            (``tensorrt``), or the library's default set, Ampere and later (``tensorrt_rtx``).
        optimization_level: TensorRT's builder optimization level, 0 to 5; None: its default.
        settings: Further fields of Torch-TensorRT's ``CompilationSettings``, such as
            ``{"disable_tf32": True}``.
    """

    compute_capabilities: tuple[str, ...] = ()
    optimization_level: int | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def checked(
        cls,
        compute_capabilities: Sequence[str] | None = None,
        optimization_level: int | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> BuildOptions:
        """Options from a caller's arguments.

        Raises:
            OptionError: A value has the wrong type or form.
        """
        if isinstance(compute_capabilities, str):
            raise OptionError(
                "compute_capabilities is a sequence of strings such as "
                f"['8.6', '8.9']; got the string {compute_capabilities!r}"
            )
        for capability in compute_capabilities or ():
            if not isinstance(capability, str) or not _CAPABILITY.fullmatch(capability):
                raise OptionError(
                    f"compute capability {capability!r} is not of the form '<major>.<minor>', "
                    "such as '8.9'"
                )
        if optimization_level is not None and (
            type(optimization_level) is not int or not 0 <= optimization_level <= 5
        ):
            raise OptionError(f"optimization_level is {optimization_level!r}; expected 0..5")
        given = dict(settings or {})
        for name in ("device", "optimization_level", "torch_executed_ops"):
            if name in given:
                raise OptionError(f"setting {name!r} is an option of the partitioner itself")
        return cls(tuple(compute_capabilities or ()), optimization_level, given)


@dataclass(frozen=True)
class BuildRequest:
    """One engine to build.

    Attributes:
        partition: The partition's name, for messages.
        lowered: The partition in plain ATen, with its bindings.
        device_id: Index of the GPU that the engine is for.
        options: What the caller asked for.
        timings: A folder where the builder may keep what it measures; None: none.
    """

    partition: str
    lowered: LoweredPartition
    device_id: int
    options: BuildOptions
    timings: Path | None = None


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
