"""Engine blobs whose engine comes in pieces, as TensorRT streams it while it builds.

The engine goes to a temporary file, so building holds no second copy of it in memory, and the
finished blob is read back once, after the builder has given its memory back.
"""

from __future__ import annotations

import contextlib
import hashlib
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from crc32c import crc32c

from trt_et.blob.codec import encode_front
from trt_et.blob.container import CHECKSUM_SLICE
from trt_et.blob.model import EngineInfo
from trt_et.errors import BuilderError

__all__ = ["BlobWriter"]

_IN_MEMORY: Final = 16 << 20  # Smaller blobs never see the disk.
_CHUNK: Final = 4 << 20


class BlobWriter:
    """Takes an engine piece by piece and gives the blob that :func:`encode_blob` would make of it.

    ::

        with BlobWriter(info) as writer:
            network.serialize(partition, writer.write)
            blob = writer.finish()

    Args:
        info: The engine's metadata; ``sha256`` is computed here, whatever it holds.

    Raises:
        BlobError: ``info`` cannot be written.
    """

    def __init__(self, info: EngineInfo) -> None:
        # Every digest has the same length, so the engine's place is known before its bytes are.
        self._info = replace(info, sha256="0" * 64)
        self._start = len(encode_front(self._info, 0))
        self._size = 0
        self._digest = hashlib.sha256()
        self._file = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY)  # noqa: SIM115
        self._file.write(bytes(self._start))

    def write(self, piece: bytes | memoryview) -> int:
        """Append a piece of the engine.

        Returns:
            How many bytes were written: all of them.

        Raises:
            BuilderError: The temporary file cannot hold it.
        """
        with _storing():
            if self._start + self._size + len(piece) > _IN_MEMORY:
                # Left to itself, the file would hold the piece in memory first; TensorRT's are
                # 64 MiB, and come when it needs most.
                self._file.rollover()
            self._file.write(piece)
        self._digest.update(piece)
        self._size += len(piece)
        return len(piece)

    def finish(self) -> bytes:
        """The blob, the only copy of it in memory; the writer takes no more.

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
