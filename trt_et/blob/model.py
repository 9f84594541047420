"""Describe a serialized engine: its bindings, its GPU, its library."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

BACKEND_ID: Final = "TensorRTBackend"  # The delegate's name in a .pte.
REFERENCE_BUILDER: Final = "reference"
MAX_DEVICE_ID: Final = 127  # ExecuTorch keeps a device index in an int8.
# Of bindings, aliases and optimization profiles.
MAX_ENTRIES: Final = 4096
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
        name: Its name in the engine.
        dtype: One of ``DTYPES``; empty if a foreign blob has none.
        shape: The engine's shape, -1 for a dynamic dimension.
        is_input: True if the engine reads it.
        min_shape: Smallest shape of the optimization profile; None if the shape is static.
        opt_shape: Shape that the engine is tuned for; None if the shape is static.
        max_shape: Largest shape; None if the shape is static.
        dim_order: ExecuTorch dim order of a tensor that is not contiguous: dimension ``i`` of
            ``shape`` is dimension ``dim_order[i]`` of the tensor. None: contiguous.
        value_of: For an output that no argument of the delegate has (the option
            ``debug_outputs``), the call inside the engine whose result it is; else empty.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    is_input: bool
    min_shape: tuple[int, ...] | None = None
    opt_shape: tuple[int, ...] | None = None
    max_shape: tuple[int, ...] | None = None
    dim_order: tuple[int, ...] | None = None
    value_of: str = ""

    @property
    def is_dynamic(self) -> bool:
        """Return whether a dimension is known only at run time."""
        return any(size < 0 for size in self.shape)


@dataclass(frozen=True)
class Alias:
    """An output that the engine writes into one of its inputs, in place."""

    output: str
    input: str
    kind: str = "kv_cache_update"


@dataclass(frozen=True)
class EngineInfo:
    """The facts that are needed to load a serialized engine.

    Attributes:
        bindings: Inputs in the order of the delegate's arguments, then outputs in result order.
        device_id: Index of the engine's GPU; None if a blob has no valid index (see
            ``trt_et.engine_info.parse_device_id``).
        builder: Name of its builder; empty in foreign blobs.
        library_version: Version of the library that built it.
        parser: ``"onnx"`` if the library's ONNX parser made the network; empty: Torch-TensorRT's
            converters did.
        compute_capabilities: Targets such as ``"8.9"``; empty: the builder's default set.
        gpu_name: GPU on which it was built; empty if the build needed none.
        hardware_compatible: True if it runs on GPUs other than the one it was built for.
        target_platform: Operating system and processor, such as ``linux_x86_64``.
        precision: The dtype of its computations if it is not the program's: ``float16``.
        sha256: Of the engine bytes, in hex; ``trt_et.engine_info.encode_blob`` fills it in.
        aliases: Outputs that share their input's memory.
        network: How to build the engine, if the engine bytes are a network (``docs/blob.md``).
        serialized_metadata: A field of Torch-TensorRT, passed through.
        engine_key: Name of the engine among the program's named data, if the blob has no engine
            bytes: they are in a separate file (``.ptd``).
    """

    bindings: tuple[Binding, ...]
    device_id: int | None = 0
    builder: str = ""
    library_version: str = ""
    parser: str = ""
    compute_capabilities: tuple[str, ...] = ()
    gpu_name: str = ""
    hardware_compatible: bool = False
    target_platform: str = ""
    precision: str = ""
    sha256: str = ""
    aliases: tuple[Alias, ...] = ()
    serialized_metadata: str = ""
    network: Mapping[str, Any] | None = None
    engine_key: str = ""

    @property
    def inputs(self) -> tuple[Binding, ...]:
        """Return the bindings that the engine reads, in argument order."""
        return tuple(binding for binding in self.bindings if binding.is_input)

    @property
    def outputs(self) -> tuple[Binding, ...]:
        """Return the bindings that the engine writes, in argument order."""
        return tuple(binding for binding in self.bindings if not binding.is_input)

    @property
    def is_reference(self) -> bool:
        """Return whether this is a reference engine, for simulated GPUs only."""
        return self.builder == REFERENCE_BUILDER
