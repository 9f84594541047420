"""Files that several processes read and replace, in folders that only their user can write."""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

from crc32c import crc32c
from filelock import FileLock

_WRITABLE_BY_OTHERS = 0o022
_PATIENCE = 60.0  # Seconds for a process that reads and replaces a file.
_log = logging.getLogger(__name__)


def make_private(folder: Path) -> None:
    """Make a folder, and missing folders above it, for this user alone: engines are code.

    Raises:
        OSError: It cannot be made.
    """
    if not folder.is_dir():
        make_private(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def others_may_write(folder: Path) -> bool:
    """Check whether a folder is another user's, or open to others; False if there is none."""
    try:
        status = folder.stat()
    except OSError:
        return False
    if not hasattr(os, "getuid"):
        return False
    return status.st_uid != os.getuid() or bool(status.st_mode & _WRITABLE_BY_OTHERS)


def replace_file(path: Path, data: bytes) -> None:
    """Write a file, all of it or nothing; the caller holds the lock for this path.

    Raises:
        OSError: It cannot be written; the old file stays.
    """
    make_private(path.parent)
    for left in path.parent.glob(f"{path.name}.*.part"):
        left.unlink()  # By a process that was killed: only the holder of the lock writes.
    part = path.with_name(f"{path.name}.{secrets.token_hex(4)}.part")
    try:
        with part.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        with contextlib.suppress(OSError):
            part.unlink()


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keep other processes from replacing the file; its folder is made.

    Raises:
        OSError: The folder cannot be written, or another process keeps the file for a minute.
    """
    make_private(path.parent)
    with FileLock(path.with_suffix(".lock"), timeout=_PATIENCE):
        yield


def read_checked(path: Path) -> bytes:
    """Read what ``write_checked`` wrote; nothing if there is no file, or it is damaged."""
    try:
        checksum, _, data = path.read_bytes().partition(b"\n")
    except FileNotFoundError:
        return b""
    except OSError as error:
        _log.warning("%s cannot be read and is not used: %s", path, error)
        return b""
    if checksum != b"%08x" % crc32c(data):
        _log.warning("%s is corrupt and not used; it is written again", path)
        return b""
    return data


def write_checked(path: Path, data: bytes) -> None:
    """Replace a file by its checksum and ``data``; the caller has it ``locked``.

    Raises:
        OSError: It cannot be written; the old file stays.
    """
    replace_file(path, b"%08x\n" % crc32c(data) + data)
