"""Engine blobs: what an engine is, which GPU it is for, and the bytes that carry both.

The format is specified in ``docs/blob.md``; the native runtime reads it with the same rules
(``trt_et/runtime/src/blob.cpp``), and both are tested with one set of vectors. The container is
Torch-TensorRT's (``torch_tensorrt.executorch.serialization``), so blobs move both ways.

This module knows neither torch nor TensorRT.
"""

from __future__ import annotations

import hashlib
import json
import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from crc32c import crc32c

from trt_et.errors import BlobError, DeviceIdError
from trt_et.strict_json import load_json

__all__ = [
    "CHECKSUM_SLICE",
    "DTYPES",
    "MAGIC",
    "MAGIC_ALIASED_IO",
    "MAGIC_REFERENCE",
    "MAX_DEVICE_ID",
    "REFERENCE_BUILDER",
    "Alias",
    "Binding",
    "EngineBlob",
    "EngineInfo",
    "decode_blob",
    "encode_blob",
    "encode_front",
    "parse_device_id",
]

MAGIC: Final = b"TR01"
MAGIC_ALIASED_IO: Final = b"TR02"
MAGIC_REFERENCE: Final = b"TRRF"
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

_HEADER: Final = struct.Struct("<4sIIIQBBHI")
_ALIGNMENT: Final = 16
_CHECKSUM_NONE: Final = 0
_CHECKSUM_CRC32C: Final = 1
CHECKSUM_SLICE: Final = slice(_HEADER.size - 4, _HEADER.size)
_MAX_METADATA: Final = 16 << 20
_MAX_RANK: Final = 16
_INT64_MAX: Final = 2**63 - 1
_SHA256: Final = re.compile(r"[0-9a-f]{64}")


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
            something that is no index (see :func:`parse_device_id`).
        builder: Name of what built it; empty in foreign blobs.
        library_version: Version of the library that built it.
        compute_capabilities: Targets such as ``"8.9"``; empty: the builder's default set.
        gpu_name: GPU that it was built on; empty when none was needed.
        hardware_compatible: Whether it runs on GPUs other than the one that it was built for.
        target_platform: Operating system and processor, such as ``linux_x86_64``.
        sha256: Of the engine bytes, in hex; :func:`encode_blob` fills it in.
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


@dataclass(frozen=True)
class EngineBlob:
    """A decoded blob.

    Attributes:
        info: The metadata.
        engine: The engine's bytes, a view into the blob that was decoded.
        magic: The container's kind.
        has_checksum: Whether the blob carried a checksum, which was then right.
    """

    info: EngineInfo
    engine: memoryview
    magic: bytes
    has_checksum: bool


def encode_blob(engine: bytes | bytearray | memoryview, info: EngineInfo) -> bytes:
    """Pack an engine and its metadata into a blob.

    Args:
        engine: The serialized engine; copied once.
        info: Its metadata. ``sha256`` is computed here, whatever ``info`` holds.

    Returns:
        The blob. The same arguments give the same bytes.

    Raises:
        BlobError: ``info`` cannot be written: a dtype, shape, device id or alias is impossible.
    """
    view = memoryview(engine).cast("B")
    front = encode_front(replace(info, sha256=hashlib.sha256(view).hexdigest()), len(view))
    front[CHECKSUM_SLICE] = int(crc32c(view, crc32c(front))).to_bytes(4, "little")
    return b"".join((front, view))


def encode_front(info: EngineInfo, engine_size: int) -> bytearray:
    """All of a blob that comes before its engine: header, metadata, padding.

    Args:
        info: The metadata, with the engine's ``sha256``.
        engine_size: In bytes; the front's own size does not depend on it.

    Returns:
        The bytes; the checksum (:data:`CHECKSUM_SLICE`) is zero, as it counts in itself.

    Raises:
        BlobError: ``info`` cannot be written.
    """
    _check_device_id(info.device_id)
    metadata = json.dumps(_metadata_of(info), separators=(",", ":"), ensure_ascii=False).encode()
    _info_from(load_json(metadata))  # What cannot be read back is not written.
    end = _HEADER.size + len(metadata)
    engine_offset = -(-end // _ALIGNMENT) * _ALIGNMENT
    header = _HEADER.pack(
        MAGIC_REFERENCE if info.is_reference else MAGIC_ALIASED_IO if info.aliases else MAGIC,
        _HEADER.size,
        len(metadata),
        engine_offset,
        engine_size,
        1,
        _CHECKSUM_CRC32C,
        0,
        0,
    )
    return bytearray(b"".join((header, metadata, bytes(engine_offset - end))))


def decode_blob(blob: bytes | bytearray | memoryview, *, verify: bool = True) -> EngineBlob:
    """Read a blob; every offset, size and type in it is distrusted.

    Args:
        blob: What :func:`encode_blob` or Torch-TensorRT's ``serialize_engine`` wrote.
        verify: Check the checksum, where there is one, before anything else is parsed.

    Returns:
        The metadata, and the engine as a view into ``blob``. ``info.device_id`` is None where the
        blob has no usable index; :func:`parse_device_id` says why.

    Raises:
        BlobError: It is truncated, corrupt, or not an engine blob.
    """
    container = _open(blob, verify=verify)
    document = load_json(bytes(container.metadata))
    info = _info_from(document)
    if info.sha256 and not container.has_checksum:
        raise BlobError("engine blob has a sha256 but no checksum: its header is corrupt")
    if bool(info.aliases) and container.magic != MAGIC_ALIASED_IO:
        raise BlobError(f"engine blob has aliased outputs but the magic {container.magic!r}")
    if info.is_reference != (container.magic == MAGIC_REFERENCE):
        raise BlobError(f"builder {info.builder!r} does not go with the magic {container.magic!r}")
    return EngineBlob(info, container.engine, container.magic, container.has_checksum)


def parse_device_id(blob: bytes | bytearray | memoryview) -> int:
    """Read the index of the GPU that a serialized engine is for out of its blob.

    Args:
        blob: An engine blob. Its engine bytes are not looked at.

    Returns:
        The index, 0 to 127.

    Raises:
        BlobError: The bytes are no engine blob.
        DeviceIdError: The blob has no ``device_id`` at the top level of its metadata, or it is not
            an integer in that range.
    """
    document = load_json(bytes(_open(blob, verify=False).metadata))
    if "device_id" not in document:
        raise DeviceIdError("the engine blob's metadata has no device_id")
    value = document["device_id"]
    if not _is_device_id(value):
        raise DeviceIdError(
            f"the engine blob's device_id is {_shorten(value)}; expected an integer in "
            f"0..{MAX_DEVICE_ID}"
        )
    return int(value)


# The container.


@dataclass(frozen=True)
class _Container:
    magic: bytes
    metadata: memoryview
    engine: memoryview
    has_checksum: bool


def _open(blob: bytes | bytearray | memoryview, *, verify: bool) -> _Container:
    view = memoryview(blob).cast("B")
    total = len(view)
    if total < _HEADER.size:
        raise BlobError(f"engine blob has {total} bytes; its header alone needs {_HEADER.size}")
    magic, meta_at, meta_size, engine_at, engine_size, _, kind, zero, checksum = _HEADER.unpack(
        view[: _HEADER.size]
    )
    if magic not in (MAGIC, MAGIC_ALIASED_IO, MAGIC_REFERENCE):
        raise BlobError(f"not an engine blob: magic {magic!r}, expected TR01, TR02 or TRRF")
    if meta_at < _HEADER.size or meta_at > total or meta_size > total - meta_at:
        raise BlobError(f"metadata [{meta_at}, +{meta_size}] lies outside the blob of {total}")
    if meta_size > _MAX_METADATA:
        raise BlobError(f"metadata of {meta_size} bytes; at most {_MAX_METADATA} are allowed")
    if engine_at % _ALIGNMENT or engine_at < meta_at + meta_size or engine_at > total:
        raise BlobError(f"engine offset {engine_at} is misaligned, overlaps, or lies outside")
    if engine_size > total - engine_at:
        raise BlobError(f"engine [{engine_at}, +{engine_size}] lies outside the blob of {total}")
    if kind not in (_CHECKSUM_NONE, _CHECKSUM_CRC32C) or zero:
        raise BlobError(f"engine blob has checksum kind {kind}; known are 0 and 1")
    if kind == _CHECKSUM_CRC32C:
        if total - engine_at != engine_size:
            raise BlobError(f"engine blob has {total - engine_at - engine_size} bytes too many")
        if verify:
            start = bytes(view[: _HEADER.size - 4]) + bytes(4)
            found = _crc32c(start, view[_HEADER.size :])
            if found != checksum:
                raise BlobError(
                    f"engine blob is corrupt: checksum {found:#010x}, expected {checksum:#010x}"
                )
    return _Container(
        magic=magic,
        metadata=view[meta_at : meta_at + meta_size],
        engine=view[engine_at : engine_at + engine_size],
        has_checksum=kind == _CHECKSUM_CRC32C,
    )


def _crc32c(start: bytes, rest: memoryview) -> int:
    return int(crc32c(rest, crc32c(start)))


# The metadata.


def _metadata_of(info: EngineInfo) -> dict[str, Any]:
    document: dict[str, Any] = {"io_bindings": [_binding_document(b) for b in info.bindings]}
    if info.aliases:
        document["aliased_io"] = [
            {"output": a.output, "input": a.input, "kind": a.kind} for a in info.aliases
        ]
    document["hardware_compatible"] = info.hardware_compatible
    if info.device_id is not None:
        document["device_id"] = info.device_id
    document["serialized_metadata"] = info.serialized_metadata
    document["target_platform"] = info.target_platform
    # Torch-TensorRT's reader gets all of its own keys; of ours, those that say something.
    ours = {
        "builder": info.builder,
        "library_version": info.library_version,
        "compute_capabilities": list(info.compute_capabilities),
        "gpu_name": info.gpu_name,
        "sha256": info.sha256,
    }
    return document | {key: value for key, value in ours.items() if value}


def _binding_document(binding: Binding) -> dict[str, Any]:
    document: dict[str, Any] = {
        "name": binding.name,
        "dtype": binding.dtype,
        "shape": list(binding.shape),
        "is_input": binding.is_input,
    }
    for key in ("min_shape", "opt_shape", "max_shape", "dim_order"):
        value = getattr(binding, key)
        if value is not None:
            document[key] = list(value)
    return document


def _info_from(document: Mapping[str, Any]) -> EngineInfo:
    bindings = tuple(
        _binding_from(entry, index)
        for index, entry in enumerate(_get(document, "io_bindings", list, required=True))
    )
    names = [binding.name for binding in bindings]
    if len(set(names)) != len(names):
        raise BlobError("two bindings of the engine have the same name")
    aliases = tuple(
        Alias(
            _get(entry, "output", str, required=True),
            _get(entry, "input", str, required=True),
            _get(entry, "kind", str, default="kv_cache_update"),
        )
        for entry in _get(document, "aliased_io", list, default=[])
    )
    by_name = {binding.name: binding for binding in bindings}
    for alias in aliases:
        source, sink = by_name.get(alias.input), by_name.get(alias.output)
        if source is None or sink is None or not source.is_input or sink.is_input:
            raise BlobError(f"alias {alias.output!r} -> {alias.input!r} names no output and input")
    capabilities = _get(document, "compute_capabilities", list, default=[])
    if not all(isinstance(item, str) for item in capabilities):
        raise BlobError("compute_capabilities of an engine blob must be strings")
    sha256 = _get(document, "sha256", str, default="")
    if sha256 and not _SHA256.fullmatch(sha256):
        raise BlobError(f"sha256 of an engine blob is {_shorten(sha256)}: not 64 hex digits")
    device_id = document.get("device_id")
    return EngineInfo(
        bindings=bindings,
        device_id=device_id if _is_device_id(device_id) else None,
        builder=_get(document, "builder", str, default=""),
        library_version=_get(document, "library_version", str, default=""),
        compute_capabilities=tuple(capabilities),
        gpu_name=_get(document, "gpu_name", str, default=""),
        hardware_compatible=_get(document, "hardware_compatible", bool, default=False),
        target_platform=_get(document, "target_platform", str, default=""),
        sha256=sha256,
        aliases=aliases,
        serialized_metadata=_get(document, "serialized_metadata", str, default=""),
    )


def _binding_from(entry: object, index: int) -> Binding:
    where = f"binding {index}"
    name = _get(entry, "name", str, required=True, where=where)
    dtype = _get(entry, "dtype", str, default="", where=where)
    if dtype and dtype not in DTYPES:
        raise BlobError(f"{where} ({_shorten(name)}) has the unknown dtype {_shorten(dtype)}")
    binding = Binding(
        name=name,
        dtype=dtype,
        shape=_dims(_get(entry, "shape", list, default=[], where=where), where, minimum=-1),
        is_input=_get(entry, "is_input", bool, required=True, where=where),
        min_shape=_optional_dims(entry, "min_shape", where),
        opt_shape=_optional_dims(entry, "opt_shape", where),
        max_shape=_optional_dims(entry, "max_shape", where),
        dim_order=_optional_dims(entry, "dim_order", where),
    )
    _check_ranges(binding, where)
    return binding


def _check_ranges(binding: Binding, where: str) -> None:
    ranges = (binding.min_shape, binding.opt_shape, binding.max_shape)
    if any(ranges) != binding.is_dynamic or (binding.is_dynamic and None in ranges):
        raise BlobError(
            f"{where} ({_shorten(binding.name)}) needs min_shape, opt_shape and max_shape exactly "
            "where its shape has a -1"
        )
    if binding.is_dynamic:
        low, opt, high = (shape or () for shape in ranges)
        if not len(low) == len(opt) == len(high) == len(binding.shape) or not all(
            lo <= mid <= hi and size in (-1, lo) and (size == -1 or lo == hi)
            for size, lo, mid, hi in zip(binding.shape, low, opt, high, strict=True)
        ):
            raise BlobError(f"{where} ({_shorten(binding.name)}) has an impossible shape range")
    order = binding.dim_order
    if order is not None and sorted(order) != list(range(len(binding.shape))):
        raise BlobError(f"{where} ({_shorten(binding.name)}) has a dim_order of another rank")


def _optional_dims(entry: object, key: str, where: str) -> tuple[int, ...] | None:
    value = _get(entry, key, list, default=None, where=where)
    return None if value is None else _dims(value, where, minimum=0)


def _dims(values: Sequence[object], where: str, *, minimum: int) -> tuple[int, ...]:
    if len(values) > _MAX_RANK:
        raise BlobError(f"{where} has {len(values)} dimensions; at most {_MAX_RANK} are allowed")
    dims = []
    for value in values:
        if type(value) is not int or not minimum <= value <= _INT64_MAX:
            raise BlobError(f"{where} has the dimension {_shorten(value)}")
        dims.append(value)
    return tuple(dims)


_REQUIRED: Final = object()


def _get(
    entry: object,
    key: str,
    kind: type,
    *,
    default: Any = _REQUIRED,  # noqa: ANN401
    required: bool = False,
    where: str = "engine metadata",
) -> Any:  # noqa: ANN401
    if not isinstance(entry, Mapping):
        raise BlobError(f"{where} is {_shorten(entry)}; expected an object")
    if key not in entry:
        if required or default is _REQUIRED:
            raise BlobError(f"{where} has no {key!r}")
        return default
    value = entry[key]
    if type(value) is not kind:
        raise BlobError(f"{where}: {key!r} is {_shorten(value)}; expected {kind.__name__}")
    return value


def _is_device_id(value: object) -> bool:
    return type(value) is int and 0 <= value <= MAX_DEVICE_ID


def _check_device_id(value: int | None) -> None:
    if value is not None and not _is_device_id(value):
        raise BlobError(f"device_id {value!r} is not an integer in 0..{MAX_DEVICE_ID}")


def _shorten(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."
