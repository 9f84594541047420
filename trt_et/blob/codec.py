"""Encode an engine and its metadata as a blob, and decode it.

The format is specified in ``docs/blob.md``; the native runtime reads it with the same rules
(``runtime/src/blob/blob.cpp``), and one set of vectors tests both. Torch-TensorRT uses the same
container (``torch_tensorrt.executorch.serialization``) and can read these blobs.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace

from crc32c import crc32c

from trt_et.blob.container import (
    CHECKSUM_SLICE,
    MAGIC,
    MAGIC_ALIASED_IO,
    MAGIC_REFERENCE,
    open_container,
    pack_front,
)
from trt_et.blob.metadata import info_from, is_device_id, metadata_of, shorten
from trt_et.blob.model import MAX_DEVICE_ID, EngineInfo
from trt_et.blob.strict_json import load_json
from trt_et.errors import BlobError, DeviceIdError


@dataclass(frozen=True)
class EngineBlob:
    """A decoded blob.

    Attributes:
        info: The metadata.
        engine: The engine's bytes, a view into the decoded blob.
        magic: The container's kind.
        has_checksum: True if the blob has a checksum. It was verified if that was requested.
    """

    info: EngineInfo
    engine: memoryview
    magic: bytes
    has_checksum: bool


def encode_blob(engine: bytes | bytearray | memoryview, info: EngineInfo) -> bytes:
    """Pack an engine and its metadata into a blob.

    Args:
        engine: The serialized engine; copied once.
        info: Its metadata. ``sha256`` is computed here, unless the engine is elsewhere
            (``engine_key``); the value in ``info`` is ignored.

    Returns:
        The blob. It depends on the arguments only.

    Raises:
        BlobError: ``info`` cannot be written: a dtype, shape, device id or alias is impossible.
    """
    view = memoryview(engine).cast("B")
    digest = "" if info.engine_key else hashlib.sha256(view).hexdigest()
    front = encode_front(replace(info, sha256=digest), len(view))
    front[CHECKSUM_SLICE] = int(crc32c(view, crc32c(front))).to_bytes(4, "little")
    return b"".join((front, view))


def encode_front(info: EngineInfo, engine_size: int) -> bytearray:
    """Return the part of a blob before its engine: header, metadata, padding.

    Args:
        info: The metadata, with the engine's ``sha256``.
        engine_size: In bytes; the front's own size does not depend on it.

    Returns:
        The bytes, with a checksum (``CHECKSUM_SLICE``) of zero.

    Raises:
        BlobError: ``info`` cannot be written.
    """
    metadata = json.dumps(metadata_of(info), separators=(",", ":"), ensure_ascii=False).encode()
    info_from(load_json(metadata))  # Refuse metadata that cannot be read back.
    magic = MAGIC_REFERENCE if info.is_reference else MAGIC_ALIASED_IO if info.aliases else MAGIC
    return pack_front(magic, metadata, engine_size)


def decode_blob(blob: bytes | bytearray | memoryview, *, verify: bool = True) -> EngineBlob:
    """Read a blob, and check every offset, size and type in it.

    Args:
        blob: From ``encode_blob`` or Torch-TensorRT's ``serialize_engine``.
        verify: Verify the checksum, if there is one, before parsing anything else.

    Returns:
        The metadata, and the engine as a view into ``blob``. ``info.device_id`` is None if the
        blob has no valid index; ``parse_device_id`` raises the reason.

    Raises:
        BlobError: It is truncated, corrupt, or not an engine blob.
    """
    magic, metadata, engine, has_checksum = open_container(blob, verify=verify)
    info = info_from(load_json(bytes(metadata)))
    if info.sha256 and not has_checksum:
        raise BlobError("engine blob has a sha256 but no checksum: its header is corrupt")
    if bool(info.aliases) and magic != MAGIC_ALIASED_IO:
        raise BlobError(f"engine blob has aliased outputs but the magic {magic!r}")
    if info.is_reference != (magic == MAGIC_REFERENCE):
        raise BlobError(f"builder {info.builder!r} does not go with the magic {magic!r}")
    for binding in info.bindings:
        if info.is_reference and not binding.dtype:
            raise BlobError(f"reference engine has no dtype for its binding {binding.name!r}")
    return EngineBlob(info, engine, magic, has_checksum)


def parse_device_id(blob: bytes | bytearray | memoryview) -> int:
    """Read the index of an engine's GPU from its blob.

    Args:
        blob: An engine blob. Its engine bytes are not read.

    Returns:
        The index, 0 to 127.

    Raises:
        BlobError: The bytes are no engine blob.
        DeviceIdError: The blob has no ``device_id`` at the top level of its metadata, or it is not
            an integer in that range.
    """
    _, metadata, _, _ = open_container(blob, verify=False)
    document = load_json(bytes(metadata))
    if "device_id" not in document:
        raise DeviceIdError("the engine blob's metadata has no device_id")
    value = document["device_id"]
    if not is_device_id(value):
        raise DeviceIdError(
            f"the engine blob's device_id is {shorten(value)}; expected an integer in "
            f"0..{MAX_DEVICE_ID}"
        )
    return int(value)
