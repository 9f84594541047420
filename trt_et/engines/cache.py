"""Engines on disk, each under a key made from everything that decides it.

::

    <folder>/v1/engines/<2 digits>/<key>   an engine's blob
    <folder>/v1/locks/                     one lock for every 4096th of the keys
    <folder>/v1/operator_support/          which operators are supported
    <folder>/v1/timings/                   TensorRT's timing caches

The cache writes a blob to a temporary file, flushes it to the disk and moves it to its name. It
checks the blob's checksum at each read; a corrupt engine is deleted and built again. If the folder
cannot be written, the export logs a warning and goes on.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from filelock import BaseFileLock, FileLock, Timeout
from platformdirs import user_cache_path

from trt_et.blob.codec import EngineBlob, decode_blob
from trt_et.blob.model import EngineInfo
from trt_et.engines.checked_file import make_private, others_may_write, replace_file
from trt_et.errors import BlobError, OptionError

CACHE_VARIABLE: Final = "TRT_ET_CACHE"
SIZE_VARIABLE: Final = "TRT_ET_CACHE_SIZE"
DEFAULT_MAX_BYTES: Final = 20 << 30

_KEY: Final = re.compile(r"[0-9a-f]{64}")
_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:I?B)?", re.IGNORECASE)
_UNITS: Final = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}
_ABANDONED: Final = 3600.0  # Seconds after which nobody writes to a file that has no name yet.
_PATIENCE: Final = 3600.0  # Seconds for another process that builds the same engine.
_log = logging.getLogger(__name__)


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
        """Return the engine's metadata.

        Raises:
            BlobError: The entry is corrupt.
            OSError: It cannot be read.
        """
        return _decoded(self.path.read_bytes()).info


class EngineCache:
    """Engines on disk. Any number of processes can use one folder at once.

    Args:
        folder: The folder; None: the user's cache folder. It is made when the first engine is
            stored.
        max_bytes: The largest size; engines that were not used for longest are removed. None:
            ``TRT_ET_CACHE_SIZE``, else 20 GiB.

    The user's cache folder is not used if other users may write to it; a folder that is named is
    the caller's choice.

    Raises:
        OptionError: ``max_bytes`` is impossible, or the folder is a file.
    """

    def __init__(
        self, folder: str | os.PathLike[str] | None = None, *, max_bytes: int | None = None
    ) -> None:
        if max_bytes is None:
            size = os.environ.get(SIZE_VARIABLE, "").strip()
            max_bytes = parse_size(size) if size else DEFAULT_MAX_BYTES
        if type(max_bytes) is not int or max_bytes < 0:
            raise OptionError(f"max_bytes is {max_bytes!r}; expected a number of bytes")
        self.folder = Path(folder).expanduser() if folder else user_cache_path("trt-et")
        if self.folder.is_file():
            raise OptionError(f"the engine cache's folder {self.folder} is a file")
        self.max_bytes = max_bytes
        self._is_named = bool(folder)
        self._warned = False
        self._unseen = max_bytes  # Bytes stored since the folder was looked through.

    def __repr__(self) -> str:
        return f"EngineCache({str(self.folder)!r}, max_bytes={self.max_bytes})"

    @property
    def support_folder(self) -> Path:
        """Return the folder of the support check's answers."""
        return self.folder / "v1" / "operator_support"

    @property
    def timings_folder(self) -> Path:
        """Return the folder of TensorRT's timing caches (``trt_et.engines.timing_cache``)."""
        return self.folder / "v1" / "timings"

    def load(self, key: str) -> bytes | None:
        """Return the blob of that key, checked; None if it is missing or corrupt."""
        path = self._path(key)
        if self._is_unsafe():
            return None
        try:
            blob = path.read_bytes()
            _decoded(blob)
        except FileNotFoundError:
            return None
        except OSError as error:
            self._warn("read", error)
            return None
        except BlobError as error:
            self.discard(key, str(error))
            return None
        with contextlib.suppress(OSError):  # Another user's folder may be read-only.
            os.utime(path)
        return blob

    def store(self, key: str, blob: bytes) -> None:
        """Keep a blob; the caller holds the key's lock. Disk errors are logged, not raised."""
        if self._is_unsafe():
            return
        try:
            _decoded(blob)
        except BlobError as error:
            _log.info("engine %s is not kept: %s", key, error)
            return
        if len(blob) > self.max_bytes:
            _log.info("an engine of %d bytes is more than the cache may hold", len(blob))
            return
        try:
            replace_file(self._path(key), blob)
            # Looking through the folder takes time: once for every 32nd of its size.
            self._unseen += len(blob)
            if self._unseen > self.max_bytes // 32:
                self._evict()
                self._unseen = 0
        except OSError as error:
            self._warn("written", error)

    def discard(self, key: str, reason: str) -> None:
        """Delete an unusable entry, and log the reason."""
        path = self._path(key)
        _log.warning("cached engine %s is not used and built again: %s", path, reason)
        with contextlib.suppress(OSError):
            path.unlink()

    def lock(self, key: str, *, wait: bool) -> BaseFileLock | None:
        """Lock a key, so that one process builds its engine; to be released after ``store``.

        Args:
            key: The engine's key.
            wait: Wait for a process that has it, for an hour. Never while holding another lock:
                that process may be waiting for this one.

        Returns:
            The lock; None if another process has it. If the folder has no locks, or another
            process keeps it for longer, it is not held.
        """
        folder = self.folder / "v1" / "locks"
        lock = FileLock(folder / f"{key[:3]}.lock", thread_local=False)
        if self._is_unsafe():
            return lock
        try:
            make_private(folder)
            lock.acquire(timeout=_PATIENCE if wait else 0)
        except Timeout:
            if not wait:
                return None
            _log.warning(
                "the engine cache's lock %s is not free after %.0f s; the engine is built without "
                "it. If no process builds, remove the file",
                lock.lock_file,
                _PATIENCE,
            )
        except OSError as error:
            self._warn("locked", error)
        return lock

    def entries(self) -> list[CacheEntry]:
        """Return the entries, the last used first."""
        cached = []
        for path in (self.folder / "v1" / "engines").glob("??/*"):
            if _KEY.fullmatch(path.name):
                with contextlib.suppress(OSError):  # Another process may have removed it.
                    status = path.stat()
                    cached.append(CacheEntry(path.name, path, status.st_size, status.st_mtime_ns))
        return sorted(cached, key=lambda entry: (-entry.used, entry.key))

    def verify(self) -> list[tuple[CacheEntry, str]]:
        """Check every entry, remove the corrupt ones, and return them with the reasons."""
        bad = []
        for entry in self.entries():
            try:
                entry.info()
            except FileNotFoundError:
                continue
            except (BlobError, OSError) as error:
                bad.append((entry, str(error)))
                with contextlib.suppress(OSError):
                    entry.path.unlink()
        return bad

    def clear(self) -> int:
        """Remove everything except the locks, and return the number of bytes removed."""
        freed = 0
        for name in ("engines", "operator_support", "timings"):
            for path in (self.folder / "v1" / name).rglob("*"):
                if path.is_file():
                    with contextlib.suppress(FileNotFoundError):
                        freed += path.stat().st_size
                        path.unlink()
        return freed

    def _evict(self) -> None:
        """Remove the least recently used engines; a process that reads one can finish."""
        entries = self.entries()
        total = sum(entry.size for entry in entries)
        while total > self.max_bytes:
            oldest = entries.pop()
            with contextlib.suppress(OSError):
                oldest.path.unlink()
                _log.debug("engine %s made room in the cache", oldest.key)
            total -= oldest.size
        for part in (self.folder / "v1" / "engines").glob("??/*.part"):
            with contextlib.suppress(OSError):
                if time.time() - part.stat().st_mtime > _ABANDONED:
                    part.unlink()

    def _is_unsafe(self) -> bool:
        if self._is_named:
            return False
        if _is_in_anothers_home(self.folder):
            self._warn("used", PermissionError("root writes nothing into another user's home"))
            return True
        if not others_may_write(self.folder):
            return False
        self._warn("used", PermissionError("it is not this user's alone"))
        return True

    def _path(self, key: str) -> Path:
        return self.folder / "v1" / "engines" / key[:2] / key

    def _warn(self, what: str, error: BaseException) -> None:
        if not self._warned:
            self._warned = True
            _log.warning(
                "the engine cache in %s cannot be %s (%s); export goes on without it. Another "
                "folder: TRT_ET_CACHE=<folder>",
                self.folder,
                what,
                error,
            )


def _is_in_anothers_home(folder: Path) -> bool:
    """Return whether root would make the folder in a place of another user.

    That user could not write to the folder any more.
    """
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    return os.geteuid() == 0 and existing.stat().st_uid != 0


def _decoded(blob: bytes) -> EngineBlob:
    decoded = decode_blob(blob)
    if not decoded.has_checksum:
        raise BlobError("it has no checksum")
    return decoded


def parse_size(text: str) -> int:
    """Return the bytes of ``"20GiB"``, ``"500M"`` or ``"1000000"``; K, M, G, T: powers of 1024.

    Raises:
        OptionError: The text is not a size.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise OptionError(
            f"cache size {text!r} cannot be read; expected a number of bytes, or one with K, M, G "
            'or T, such as "20GiB" (environment variable TRT_ET_CACHE_SIZE)'
        )
    return int(float(match[1]) * (1 << _UNITS[match[2].upper()]))


CacheChoice = EngineCache | str | os.PathLike[str] | bool | None


def choose_cache(choice: CacheChoice) -> EngineCache | None:
    """Return the cache that an option or the environment asks for; None: no cache.

    Args:
        choice: A cache, a folder, True (the user's cache folder), False (none), or None: the
            environment variable ``TRT_ET_CACHE`` ("1" or "on", a folder; unset, "0" or "off":
            none).

    Raises:
        OptionError: It is something else.
    """
    if choice is None:
        asked = os.environ.get(CACHE_VARIABLE, "").strip()
        if asked.lower() in ("", "0", "off", "no", "false"):
            return None
        return EngineCache() if asked.lower() in ("1", "on", "yes", "true") else EngineCache(asked)
    if isinstance(choice, EngineCache):
        return choice
    if isinstance(choice, bool):
        return EngineCache() if choice else None
    if isinstance(choice, str | os.PathLike) and str(choice):
        return EngineCache(choice)
    raise OptionError(f"cache is {choice!r}; expected True, False, a folder or an EngineCache")
