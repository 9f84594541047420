"""TensorRT's timing cache: measured kernels, kept from one export to the next.

Building for a GPU is mostly timing kernels on it; what was timed once need not be timed again, in
other partitions and other models too. One file for each GPU and version, checked when it is read,
replaced as a whole, and merged with what other processes measured meanwhile. TensorRT-RTX times
nothing ahead of time and has none.
"""

from __future__ import annotations

import hashlib
import logging
from pathlib import Path
from typing import Any

from trt_et.cache.checked_file import locked, read_checked, write_checked

__all__ = ["TimingCache"]

_log = logging.getLogger(__name__)


class TimingCache:
    """The timings of one GPU and version.

    Args:
        folder: Where timings are kept; None: nowhere, and nothing here does anything.
        identity: The GPU and TensorRT's version, which decide what timings are worth.
    """

    def __init__(self, folder: Path | None, identity: str) -> None:
        name = hashlib.sha256(identity.encode()).hexdigest()[:32]
        self._path = None if folder is None else folder / f"{name}.timing"
        self._loaded = b""

    def load(self, config: Any) -> None:  # noqa: ANN401
        """Give TensorRT's builder config what is known; an empty one where nothing is."""
        if self._path is None:
            return
        self._loaded = read_checked(self._path)
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
        try:
            with locked(self._path):
                there = read_checked(self._path)
                if there and there != self._loaded:  # Another process was here.
                    others = config.create_timing_cache(there)
                    if others is not None:
                        timings.combine(others, False)
                data = bytes(memoryview(timings.serialize()))
                if data != there:
                    write_checked(self._path, data)
        except OSError as error:
            _log.warning("TensorRT's timings cannot be kept in %s: %s", self._path, error)
