"""What a builder is given, and what it returns."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

from trt_et.builders.monitor import BuildMonitor
from trt_et.errors import OptionError

if TYPE_CHECKING:
    from trt_et.lowering.lower import LoweredPartition

__all__ = ["BuildOptions", "BuildRequest", "EngineBuilder"]

# Fields of CompilationSettings that options of the partitioner stand for.
_OPTIONS: Final = {
    "device": "device",
    "optimization_level": "optimization_level",
    "torch_executed_ops": "excluded_ops",
    "min_block_size": "min_block_size",
    "require_full_compilation": "full_graph",
    "workspace_size": "workspace_size",
    "hardware_compatible": "hardware_compatible",
    "version_compatible": "version_compatible",
    "immutable_weights": "refittable",
    "enable_weight_streaming": "weight_streaming",
}
_CAPABILITY = re.compile(r"(\d{1,2})\.(\d)")


@dataclass(frozen=True)
class BuildOptions:
    """What a caller may ask of an engine, beyond the partition itself.

    Attributes:
        compute_capabilities: Targets, such as ``("8.6", "8.9")``. Empty: the GPU at hand
            (``tensorrt``), or the library's default set, Ampere and later (``tensorrt_rtx``).
        optimization_level: TensorRT's builder optimization level, 0 to 5; None: its default.
        settings: Fields of Torch-TensorRT's ``CompilationSettings``: those that options of the
            partitioner stand for, and what else the caller gave, such as
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
        *,
        workspace_size: int | None = None,
        hardware_compatible: bool = False,
        version_compatible: bool = False,
        refittable: bool = False,
        weight_streaming: bool = False,
    ) -> BuildOptions:
        """Options from a caller's arguments (see :class:`trt_et.TensorRTPartitioner`).

        Raises:
            OptionError: A value has the wrong type or form, or is given twice.
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
        if workspace_size is not None and (type(workspace_size) is not int or workspace_size < 1):
            raise OptionError(f"workspace_size is {workspace_size!r}; expected bytes, 1 or more")
        if version_compatible:
            raise OptionError(
                "version_compatible=True is not supported: Torch-TensorRT leaves the lean runtime "
                "out of such engines, and no other TensorRT version runs them without it; export "
                "once with each TensorRT version that is to run the program"
            )
        fields = {} if workspace_size is None else {"workspace_size": workspace_size}
        for option, asked, name, value in (
            ("hardware_compatible", hardware_compatible, "hardware_compatible", True),
            ("refittable", refittable, "immutable_weights", False),
            ("weight_streaming", weight_streaming, "enable_weight_streaming", True),
        ):
            if type(asked) is not bool:
                raise OptionError(f"{option} is {asked!r}; expected True or False")
            if asked:
                fields[name] = value
        return cls(
            tuple(compute_capabilities or ()),
            optimization_level,
            _checked_settings(settings or {}) | fields,
        )


def _checked_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    for name in settings:
        if name in _OPTIONS:
            raise OptionError(
                f"setting {name!r} is an option of the partitioner itself: {_OPTIONS[name]}"
            )
    if settings.get("strip_engine_weights"):
        raise OptionError(
            "strip_engine_weights makes engines without weights, and nothing here puts them back "
            "when a program is loaded"
        )
    return dict(settings)


@dataclass(frozen=True)
class BuildRequest:
    """One engine to build.

    Attributes:
        partition: The partition's name, for messages.
        lowered: The partition in plain ATen, with its bindings.
        device_id: Index of the GPU that the engine is for.
        options: What the caller asked for.
        timings: A folder where the builder may keep what it measures; None: none.
        monitor: Where a builder may say how far it is, and sees whether it shall stop.
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
