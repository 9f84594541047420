"""Write a blob while TensorRT streams its engine in pieces.

The engine goes to a temporary file, so a build holds no second copy in memory. The finished blob is
read back once, after the builder has freed its memory.
"""

from __future__ import annotations

import contextlib
import hashlib
import mmap
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from crc32c import crc32c

from trt_et.blob.codec import encode_front
from trt_et.blob.container import CHECKSUM_SLICE
from trt_et.blob.model import EngineInfo
from trt_et.errors import BuilderError

_IN_MEMORY: Final = 16 << 20  # Smaller blobs never see the disk.
_CHUNK: Final = 4 << 20


class BlobWriter:
    """Collect an engine in pieces, and return the same blob as ``encode_blob``.

    ::

        with BlobWriter(info) as writer:
            network.serialize(partition, writer.write)
            blob = writer.finish()

    Args:
        info: The engine's metadata; ``sha256`` is computed here; the value in ``info`` is ignored.

    Raises:
        BlobError: ``info`` cannot be written.
    """

    def __init__(self, info: EngineInfo) -> None:
        # Every digest has the same length, so the engine's offset does not depend on its bytes.
        self._info = replace(info, sha256="0" * 64)
        self._start = len(encode_front(self._info, 0))
        self._size = 0
        self._digest = hashlib.sha256()
        self._file = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY)  # noqa: SIM115
        self._file.write(bytes(self._start))

    def write(self, piece: bytes | memoryview) -> int:
        """Append a piece of the engine.

        Returns:
            The number of bytes written: all of them.

        Raises:
            BuilderError: The temporary file cannot hold it.
        """
        with _storing():
            if self._start + self._size + len(piece) > _IN_MEMORY:
                # Otherwise the file would hold the piece in memory first. TensorRT's pieces have
                # 64 MiB and arrive at its peak of memory.
                self._file.rollover()
            self._file.write(piece)
        self._digest.update(piece)
        self._size += len(piece)
        return len(piece)

    def engine(self) -> memoryview:
        """Return what has been written of the engine; a large one stays in the file."""
        if self._start + self._size > _IN_MEMORY:
            self._file.flush()
            return memoryview(mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ))[
                self._start :
            ]
        self._file.seek(self._start)
        return memoryview(self._file.read())

    def finish(self) -> bytes:
        """Return the blob, the only copy in memory. Do not write after this.

        Raises:
            BuilderError: The temporary file cannot hold it.
        """
        front = encode_front(replace(self._info, sha256=self._digest.hexdigest()), self._size)
        with _storing():
            self._file.seek(self._start)
            checksum = crc32c(front)
            while chunk := self._file.read(_CHUNK):
                checksum = crc32c(chunk, checksum)
            front[CHECKSUM_SLICE] = checksum.to_bytes(4, "little")
            self._file.seek(0)
            self._file.write(front)
            self._file.seek(0)
            return self._file.read()

    def __enter__(self) -> BlobWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


@contextlib.contextmanager
def _storing() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise BuilderError(
            f"the engine cannot be written to a temporary file in {tempfile.gettempdir()}: "
            f"{error}; set TMPDIR to a folder with more room"
        ) from error
