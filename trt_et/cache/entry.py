"""One engine in the cache: a file with a header, which has checksums, and the engine's blob."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from crc32c import crc32c

from trt_et.blob.codec import decode_blob
from trt_et.blob.model import EngineInfo
from trt_et.errors import BlobError

__all__ = ["HEADER_SIZE", "CacheEntry", "entry_header", "read_entry"]

_MAGIC: Final = b"trt-et1\n"
_HEADER: Final = struct.Struct("<8s64sQI")  # Magic, key, size and CRC-32C of the blob;
_CHECK: Final = struct.Struct("<I")  # then the CRC-32C of these.
HEADER_SIZE: Final = _HEADER.size + _CHECK.size


@dataclass(frozen=True)
class CacheEntry:
    """An engine in the cache.

    Attributes:
        key: Its key, 64 hex digits.
        path: Its file.
        size: Bytes of the file.
        used: When it was last used, in nanoseconds since the epoch.
    """

    key: str
    path: Path
    size: int
    used: int

    def info(self) -> EngineInfo:
        """The engine's metadata.

        Raises:
            BlobError: The entry is corrupt or gone.
        """
        return decode_blob(read_entry(self.path, self.key), verify=False).info


def entry_header(key: str, blob: bytes) -> bytes:
    """What an entry's file has before its blob."""
    head = _HEADER.pack(_MAGIC, key.encode(), len(blob), crc32c(blob))
    return head + _CHECK.pack(crc32c(head))


def read_entry(path: Path, key: str) -> bytes:
    """The blob of an entry.

    Raises:
        BlobError: It is not intact, or another key's.
        OSError: It cannot be read.
    """
    with path.open("rb", buffering=0) as file:
        head = file.read(HEADER_SIZE)
        blob = file.read()  # At once, into the memory that stays.
    if len(head) != HEADER_SIZE:
        raise BlobError(f"the cache entry is cut off after {len(head)} bytes")
    if head != entry_header(key, blob):
        magic, name, size, _ = _HEADER.unpack(head[: _HEADER.size])
        if magic != _MAGIC:
            raise BlobError("it is no cache entry of this version")
        if name != key.encode():
            raise BlobError("it is the cache entry of another key")
        if size != len(blob):
            raise BlobError(f"the cache entry holds {len(blob)} bytes of a blob of {size}")
        raise BlobError("the cache entry is corrupt: its checksum is wrong")
    return blob
