"""The lock that keeps two processes from building the same engine."""

from __future__ import annotations

from collections.abc import Callable

from filelock import FileLock

__all__ = ["BuildLock"]


class BuildLock:
    """The lock of one engine, held while it is built and stored; released with its process.

    Args:
        store: Puts the engine into the cache.
        lock: The lock; None where the folder has no locks, and nothing is stored.
    """

    def __init__(self, store: Callable[[bytes], None], lock: FileLock | None) -> None:
        self._store = store
        self._lock = lock

    def store(self, blob: bytes) -> None:
        """Put the engine into the cache. Whatever the disk says, this does not raise."""
        if self._lock is not None:
            self._store(blob)

    def release(self) -> None:
        """Release it; those that wait for it find what was stored."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def __enter__(self) -> BuildLock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
