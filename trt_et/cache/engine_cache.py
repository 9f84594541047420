"""Engines on disk, found again by what they were built from.

::

    <folder>/v1/engines/<2 digits>/<key>   a header, then the engine's blob
    <folder>/v1/partial/                   what is being written
    <folder>/v1/locks/                     one lock for every 4096th of the keys
    <folder>/v1/operator_support/          which operators are supported (support_cache.py)
    <folder>/v1/timings/                   TensorRT's timing caches

An entry is there in full or not at all: it is written elsewhere, flushed to the disk, and moved
into place. It is checked whenever it is read; what fails is thrown away and built again. Where the
folder cannot be written, a warning says so and export goes on without. Folders are made for their
user alone: engines are code.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import secrets
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

from filelock import FileLock, Timeout
from platformdirs import user_cache_path

from trt_et.blob.codec import decode_blob
from trt_et.cache.build_lock import BuildLock
from trt_et.cache.entry import HEADER_SIZE, CacheEntry, entry_header, read_entry
from trt_et.cache.private_folder import make_private, others_may_write
from trt_et.errors import BlobError, OptionError

__all__ = [
    "DEFAULT_MAX_BYTES",
    "SIZE_VARIABLE",
    "EngineCache",
    "parse_size",
]

SIZE_VARIABLE: Final = "TRT_ET_CACHE_SIZE"
DEFAULT_MAX_BYTES: Final = 20 << 30

_KEY: Final = re.compile(r"[0-9a-f]{64}")
_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:I?B)?", re.IGNORECASE)
_UNITS: Final = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}
_log = logging.getLogger(__name__)


class EngineCache:
    """Engines on disk. Any number of processes can use one folder at once.

    Args:
        folder: Where; None: the user's cache folder. It is made when the first engine is stored.
        max_bytes: How large it may become: what was not used for longest is removed. None:
            ``TRT_ET_CACHE_SIZE``, else 20 GiB.

    The user's cache folder is not used where other users may write to it; a folder that is named is
    the caller's choice.

    Raises:
        OptionError: ``max_bytes`` is impossible.
    """

    def __init__(
        self, folder: str | os.PathLike[str] | None = None, *, max_bytes: int | None = None
    ) -> None:
        if max_bytes is None:
            said = os.environ.get(SIZE_VARIABLE, "").strip()
            max_bytes = parse_size(said) if said else DEFAULT_MAX_BYTES
        if type(max_bytes) is not int or max_bytes < 0:
            raise OptionError(f"max_bytes is {max_bytes!r}; expected a number of bytes")
        self.folder = Path(folder).expanduser() if folder else user_cache_path("trt-et")
        self.max_bytes = max_bytes
        self._is_named = bool(folder)
        self._warned = False
        self._unseen = max_bytes  # Bytes stored since the folder was looked through.

    def __repr__(self) -> str:
        return f"EngineCache({str(self.folder)!r}, max_bytes={self.max_bytes})"

    @property
    def support_folder(self) -> Path:
        """The files that say which operators are supported."""
        return self.folder / "v1" / "operator_support"

    @property
    def timings_folder(self) -> Path:
        """Where TensorRT's timing caches are (``trt_et.cache.timing_cache``)."""
        return self.folder / "v1" / "timings"

    def load(self, key: str) -> bytes | None:
        """The blob of that key, checked; None if there is none that is intact."""
        path = self._path(key)
        if self._is_unsafe():
            return None
        try:
            blob = read_entry(path, key)
        except FileNotFoundError:
            return None
        except OSError as error:
            self._warn("read", error)
            return None
        except BlobError as error:
            self.discard(key, str(error))
            return None
        with contextlib.suppress(OSError):  # Somebody else's folder can be read all the same.
            os.utime(path)
        return blob

    def discard(self, key: str, reason: str) -> None:
        """Throw an entry away that is not to be used, and say why."""
        path = self._path(key)
        _log.warning("cached engine %s is not used and built again: %s", path, reason)
        with contextlib.suppress(OSError):
            path.unlink()

    def lock(self, key: str, *, wait: bool) -> BuildLock | None:
        """The right to build and store the engine of that key.

        Args:
            key: The engine's key.
            wait: Wait for a process that has it. Never while holding another lock: that process
                may be waiting for this one.

        Returns:
            The lock, to be used in a ``with`` statement; None where another process has it.
        """
        store = partial(self._store, key)
        if self._is_unsafe():
            return BuildLock(store, None)
        file_lock = FileLock(self._folder("locks") / f"{key[:3]}.lock", thread_local=False)
        try:
            make_private(self._folder("locks"))
            file_lock.acquire(timeout=-1 if wait else 0)
        except Timeout:
            return None
        except OSError as error:
            self._warn("locked", error)
            return BuildLock(store, None)
        return BuildLock(store, file_lock)

    def entries(self) -> list[CacheEntry]:
        """What it holds, the entry that was used last first."""
        found = []
        for path in self._folder("engines").glob("??/*"):
            if _KEY.fullmatch(path.name):
                with contextlib.suppress(OSError):  # Removed by another process meanwhile.
                    status = path.stat()
                    found.append(CacheEntry(path.name, path, status.st_size, status.st_mtime_ns))
        return sorted(found, key=lambda entry: (-entry.used, entry.key))

    def verify(self) -> list[tuple[CacheEntry, str]]:
        """Check every entry, throw away what is corrupt, and return it with the reasons."""
        bad = []
        for entry in self.entries():
            try:
                decode_blob(read_entry(entry.path, entry.key), verify=False)
            except FileNotFoundError:
                continue
            except (BlobError, OSError) as error:
                bad.append((entry, str(error)))
                with contextlib.suppress(OSError):
                    entry.path.unlink()
        self._sweep()
        return bad

    def clear(self) -> int:
        """Remove everything and return how many bytes that were."""
        freed = 0
        for name in ("engines", "partial", "operator_support", "timings"):
            for path in self._folder(name).rglob("*"):
                if path.is_file():
                    with contextlib.suppress(FileNotFoundError):
                        freed += path.stat().st_size
                        path.unlink()
        return freed

    def _store(self, key: str, blob: bytes) -> None:
        if HEADER_SIZE + len(blob) > self.max_bytes:
            _log.info("an engine of %d bytes is more than the cache may hold", len(blob))
            return
        part = self._folder("partial") / f"{key}.{os.getpid()}.{secrets.token_hex(4)}"
        path = self._path(key)
        try:
            make_private(part.parent)
            make_private(path.parent)
            with part.open("xb") as file:
                file.write(entry_header(key, blob))
                file.write(blob)
                file.flush()
                os.fsync(file.fileno())
            # Should the new name not survive a power failure, the engine is built again.
            part.replace(path)
            self._unseen += HEADER_SIZE + len(blob)
            if self._unseen > self.max_bytes // 32:
                self._evict()
        except OSError as error:
            self._warn("written", error)
        finally:
            with contextlib.suppress(OSError):
                part.unlink()

    def _evict(self) -> None:
        """Remove what was not used for longest until the rest fits.

        Looking through the folder takes time, so this is done once for every 32nd of its size that
        is stored, and by an object that stores for the first time.

        A file that another process is reading stays readable for it after it is removed.
        """
        with self._alone("evict") as alone:
            if not alone:
                return
            self._unseen = 0
            entries = self.entries()
            total = sum(entry.size for entry in entries)
            while total > self.max_bytes and entries:
                oldest = entries.pop()
                with contextlib.suppress(OSError):
                    oldest.path.unlink()
                    _log.debug("engine %s made room in the cache", oldest.key)
                total -= oldest.size
        self._sweep()

    def _sweep(self) -> None:
        """Remove what killed processes left half-written: nobody holds its key's lock."""
        for part in self._folder("partial").glob("*"):
            with self._alone(part.name[:3]) as alone, contextlib.suppress(OSError):
                if alone:
                    part.unlink()

    @contextlib.contextmanager
    def _alone(self, name: str) -> Iterator[bool]:
        lock = FileLock(self._folder("locks") / f"{name}.lock", thread_local=False)
        try:
            lock.acquire(timeout=0)
        except (Timeout, OSError):
            yield False
            return
        try:
            yield True
        finally:
            lock.release()

    def _is_unsafe(self) -> bool:
        if self._is_named or not others_may_write(self.folder):
            return False
        self._warn("used", PermissionError("it is not this user's alone"))
        return True

    def _folder(self, name: str) -> Path:
        return self.folder / "v1" / name

    def _path(self, key: str) -> Path:
        return self._folder("engines") / key[:2] / key

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


def parse_size(text: str) -> int:
    """Bytes from ``"20GiB"``, ``"500M"`` or ``"1000000"``; K, M, G and T are powers of 1024.

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
