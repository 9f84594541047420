"""What is said of a serialized engine: its bindings, its GPU, its library."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = [
    "BACKEND_ID",
    "DTYPES",
    "MAX_DEVICE_ID",
    "REFERENCE_BUILDER",
    "Alias",
    "Binding",
    "EngineInfo",
]

BACKEND_ID: Final = "TensorRTBackend"  # What a .pte calls a delegate with such a blob.
REFERENCE_BUILDER: Final = "reference"
MAX_DEVICE_ID: Final = 127  # ExecuTorch keeps a device index in an int8.
DTYPES: Final = frozenset(
    [
        "float32",
        "float16",
        "bfloat16",
        "int8",
        "uint8",
        "int16",
        "int32",
        "int64",
        "bool",
        "float64",
    ]
)


@dataclass(frozen=True)
class Binding:
    """One input or output of an engine.

    Attributes:
        name: The engine's name of it.
        dtype: One of :data:`DTYPES`; empty where a foreign blob does not say.
        shape: The engine's shape, -1 for a dynamic dimension.
        is_input: Whether the engine reads it.
        min_shape: Smallest shape of the optimization profile; None where all is static.
        opt_shape: Shape that the engine is tuned for; None where all is static.
        max_shape: Largest shape; None where all is static.
        dim_order: ExecuTorch dim order of the tensor where it is not contiguous: dimension ``i`` of
            ``shape`` is dimension ``dim_order[i]`` of the tensor. None: contiguous.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    is_input: bool
    min_shape: tuple[int, ...] | None = None
    opt_shape: tuple[int, ...] | None = None
    max_shape: tuple[int, ...] | None = None
    dim_order: tuple[int, ...] | None = None

    @property
    def is_dynamic(self) -> bool:
        """Whether a dimension is known only when the engine runs."""
        return any(size < 0 for size in self.shape)


@dataclass(frozen=True)
class Alias:
    """An output that the engine writes into one of its inputs, in place."""

    output: str
    input: str
    kind: str = "kv_cache_update"


@dataclass(frozen=True)
class EngineInfo:
    """What a serialized engine needs said about it.

    Attributes:
        bindings: Inputs in the order of the delegate's arguments, then outputs likewise.
        device_id: Index of the GPU that the engine is for; None where a blob does not say, or says
            something that is no index (see :func:`trt_et.engine_info.parse_device_id`).
        builder: Name of what built it; empty in foreign blobs.
        library_version: Version of the library that built it.
        compute_capabilities: Targets such as ``"8.9"``; empty: the builder's default set.
        gpu_name: GPU that it was built on; empty when none was needed.
        hardware_compatible: Whether it runs on GPUs other than the one that it was built for.
        target_platform: Operating system and processor, such as ``linux_x86_64``.
        sha256: Of the engine bytes, in hex; :func:`trt_et.engine_info.encode_blob` fills it in.
        aliases: Outputs that share their input's memory.
        serialized_metadata: Torch-TensorRT's own field, carried through.
    """

    bindings: tuple[Binding, ...]
    device_id: int | None = 0
    builder: str = ""
    library_version: str = ""
    compute_capabilities: tuple[str, ...] = ()
    gpu_name: str = ""
    hardware_compatible: bool = False
    target_platform: str = ""
    sha256: str = ""
    aliases: tuple[Alias, ...] = ()
    serialized_metadata: str = ""

    @property
    def inputs(self) -> tuple[Binding, ...]:
        """The bindings that the engine reads, in argument order."""
        return tuple(binding for binding in self.bindings if binding.is_input)

    @property
    def outputs(self) -> tuple[Binding, ...]:
        """The bindings that the engine writes, in argument order."""
        return tuple(binding for binding in self.bindings if not binding.is_input)

    @property
    def is_reference(self) -> bool:
        """Whether this is a reference engine, which only simulated GPUs run."""
        return self.builder == REFERENCE_BUILDER
