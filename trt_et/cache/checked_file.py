"""Small files that several processes read and replace: whole, with a checksum, under a lock."""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

from crc32c import crc32c
from filelock import FileLock

from trt_et.cache.private_folder import make_private

__all__ = ["locked", "read_checked", "write_checked"]

_log = logging.getLogger(__name__)


def read_checked(path: Path) -> bytes:
    """What :func:`write_checked` wrote; nothing where there is no such file, or it is damaged."""
    try:
        checksum, _, data = path.read_bytes().partition(b"\n")
    except FileNotFoundError:
        return b""
    except OSError as error:
        _log.warning("%s cannot be read and is not used: %s", path, error)
        return b""
    if checksum != b"%08x" % crc32c(data):
        _log.warning("%s is corrupt and not used; it is written anew", path)
        return b""
    return data


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keep other processes from replacing the file; its folder is made.

    Raises:
        OSError: The folder cannot be written.
    """
    make_private(path.parent)
    with FileLock(path.with_suffix(".lock")):
        yield


def write_checked(path: Path, data: bytes) -> None:
    """Replace the file at once; the caller has it :func:`locked`.

    Raises:
        OSError: It cannot be written; what was there is there still.
    """
    for left in path.parent.glob(f"{path.name}.*"):
        left.unlink()  # By a process that was killed: only the holder of the lock writes.
    part = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    try:
        with part.open("xb") as file:
            file.write(b"%08x\n" % crc32c(data) + data)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        with contextlib.suppress(OSError):
            part.unlink()
