"""Keeps TensorRT's timing cache (measured kernels) from one export to the next.

A build for a GPU mostly times kernels on it. Timings serve other partitions and other models of the
same GPU and TensorRT version. Each of these has one file, which is checked when it is read,
replaced as a whole, and merged with other processes' timings. TensorRT-RTX times kernels when an
engine is loaded, so it has no timing cache.
"""

from __future__ import annotations

import hashlib
import logging
from pathlib import Path
from typing import Any

from trt_et.engines.checked_file import locked, read_checked, write_checked

_log = logging.getLogger(__name__)


class TimingCache:
    """The timings of one GPU and version.

    Args:
        folder: The files' folder; None: timings are not kept.
        identity: The GPU and TensorRT's version.
    """

    def __init__(self, folder: Path | None, identity: str) -> None:
        name = hashlib.sha256(identity.encode()).hexdigest()[:32]
        self._path = None if folder is None else folder / f"{name}.timing"
        self._loaded = b""

    def load(self, config: Any) -> None:  # noqa: ANN401
        """Give the known timings to TensorRT's builder config."""
        if self._path is None:
            return
        self._loaded = read_checked(self._path)
        known = config.create_timing_cache(self._loaded)
        if known is None or not config.set_timing_cache(known, False):
            _log.warning("TensorRT refuses the timings in %s and measures them again", self._path)
            self._loaded = b""
            config.set_timing_cache(config.create_timing_cache(b""), False)

    def save(self, config: Any) -> None:  # noqa: ANN401
        """Keep TensorRT's timings. Disk errors are logged, not raised."""
        timings = config.get_timing_cache() if self._path is not None else None
        if self._path is None or timings is None:
            return
        try:
            with locked(self._path):
                stored = read_checked(self._path)
                if stored and stored != self._loaded:  # Another process wrote it since.
                    others = config.create_timing_cache(stored)
                    if others is not None:
                        timings.combine(others, False)
                data = bytes(memoryview(timings.serialize()))
                if data != stored:
                    write_checked(self._path, data)
        except OSError as error:
            _log.warning("TensorRT's timings cannot be kept in %s: %s", self._path, error)
