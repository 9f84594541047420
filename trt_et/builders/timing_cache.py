"""TensorRT's timing cache: measured kernels, kept from one export to the next.

Building for a GPU is mostly timing kernels on it; what was timed once need not be timed again, in
other partitions and other models too. One file for each GPU and version, checked when it is read,
replaced as a whole, and merged with what other processes measured meanwhile. TensorRT-RTX times
nothing ahead of time and has none.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import secrets
from pathlib import Path
from typing import Any

from crc32c import crc32c
from filelock import FileLock

__all__ = ["TimingCache"]

_log = logging.getLogger(__name__)


class TimingCache:
    """The timings of one GPU and version.

    Args:
        folder: Where timings are kept; None: nowhere, and nothing here does anything.
        who: The GPU and TensorRT's version, which decide what timings are worth.
    """

    def __init__(self, folder: Path | None, who: str) -> None:
        name = hashlib.sha256(who.encode()).hexdigest()[:32]
        self._path = None if folder is None else folder / f"{name}.timing"
        self._loaded = b""

    def load(self, config: Any) -> None:  # noqa: ANN401
        """Give TensorRT's builder config what is known; an empty one where nothing is."""
        if self._path is None:
            return
        self._loaded = _read(self._path)
        known = config.create_timing_cache(self._loaded)
        if known is None or not config.set_timing_cache(known, False):
            _log.warning("TensorRT does not take the timings in %s; it starts anew", self._path)
            self._loaded = b""
            config.set_timing_cache(config.create_timing_cache(b""), False)

    def save(self, config: Any) -> None:  # noqa: ANN401
        """Keep what TensorRT has measured. Whatever the disk says, this does not raise."""
        timings = config.get_timing_cache() if self._path is not None else None
        if self._path is None or timings is None:
            return
        part = self._path.with_name(f"{self._path.name}.{secrets.token_hex(4)}")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(self._path.with_suffix(".lock")):
                there = _read(self._path)
                if there and there != self._loaded:  # Another process was here.
                    others = config.create_timing_cache(there)
                    if others is not None:
                        timings.combine(others, False)
                data = bytes(memoryview(timings.serialize()))
                if data == there:
                    return
                with part.open("xb") as file:
                    file.write(b"%08x\n" % crc32c(data) + data)
                    file.flush()
                    os.fsync(file.fileno())
                part.replace(self._path)
        except (OSError, NotImplementedError) as error:
            _log.warning("TensorRT's timings cannot be kept in %s: %s", self._path, error)
        finally:
            with contextlib.suppress(OSError):
                part.unlink()


def _read(path: Path) -> bytes:
    try:
        checksum, _, data = path.read_bytes().partition(b"\n")
    except FileNotFoundError:
        return b""
    except OSError as error:
        _log.warning("TensorRT's timings in %s cannot be read: %s", path, error)
        return b""
    if checksum != b"%08x" % crc32c(data):
        _log.warning("TensorRT's timings in %s are corrupt and measured again", path)
        return b""
    return data
