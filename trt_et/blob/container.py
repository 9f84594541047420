"""Read and write the container of an engine blob (``docs/blob.md``, "Layout")."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

from crc32c import crc32c

from trt_et.errors import BlobError

MAGIC: Final = b"TR01"
MAGIC_ALIASED_IO: Final = b"TR02"
MAGIC_REFERENCE: Final = b"TRRF"

_HEADER: Final = struct.Struct("<4sIIIQBBHI")
_ALIGNMENT: Final = 16
_CHECKSUM_NONE: Final = 0
_CHECKSUM_CRC32C: Final = 1
CHECKSUM_SLICE: Final = slice(_HEADER.size - 4, _HEADER.size)
_MAX_METADATA: Final = 16 << 20


def open_container(
    blob: bytes | bytearray | memoryview, *, verify: bool
) -> tuple[bytes, memoryview, memoryview, bool]:
    """Split a blob into its parts, and check every offset and size.

    Args:
        blob: The blob.
        verify: Verify the checksum, if there is one.

    Returns:
        The magic; the metadata and the engine, as views into the blob; whether it has a checksum.

    Raises:
        BlobError: It is truncated, corrupt, or not an engine blob.
    """
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
    if kind == _CHECKSUM_NONE and checksum:
        raise BlobError("engine blob has a checksum of no kind: it is corrupt")
    if kind == _CHECKSUM_CRC32C:
        if total - engine_at != engine_size:
            raise BlobError(f"engine blob has {total - engine_at - engine_size} bytes too many")
        if verify:
            check_checksum([view])
    metadata = view[meta_at : meta_at + meta_size]
    return magic, metadata, view[engine_at : engine_at + engine_size], kind == _CHECKSUM_CRC32C


def pack_front(magic: bytes, metadata: bytes, engine_size: int) -> bytearray:
    """Return header, metadata and padding, with a checksum of zero.

    Args:
        magic: The container's kind.
        metadata: JSON.
        engine_size: In bytes.
    """
    end = _HEADER.size + len(metadata)
    engine_offset = -(-end // _ALIGNMENT) * _ALIGNMENT
    facts = (magic, _HEADER.size, len(metadata), engine_offset, engine_size)
    header = _HEADER.pack(*facts, 1, _CHECKSUM_CRC32C, 0, 0)
    return bytearray(b"".join((header, metadata, bytes(engine_offset - end))))


def check_checksum(chunks: Iterable[memoryview]) -> None:
    """Verify a blob's checksum, if it has one.

    Args:
        chunks: The blob in pieces; the first contains the whole header.

    Raises:
        BlobError: It is corrupt.
    """
    pieces = iter(chunks)
    first = next(pieces)
    *_, kind, _, expected = _HEADER.unpack(first[: _HEADER.size])
    if kind != _CHECKSUM_CRC32C:
        return
    computed = crc32c(
        first[_HEADER.size :], crc32c(bytes(first[: CHECKSUM_SLICE.start]) + bytes(4))
    )
    for piece in pieces:
        computed = crc32c(piece, computed)
    if computed != expected:
        raise BlobError(
            f"engine blob is corrupt: checksum {computed:#010x}, expected {expected:#010x}"
        )
