"""Engines on disk, found again by what they were built from.

::

    <folder>/v1/engines/<2 digits>/<key>   a header, then the engine's blob
    <folder>/v1/partial/                   what is being written
    <folder>/v1/locks/                     one lock for every 4096th of the keys
    <folder>/v1/operator_support/          which operators are supported (support_cache.py)
    <folder>/v1/timings/                   TensorRT's timing caches

An entry is there in full or not at all: it is written elsewhere, flushed to the disk, and moved
into place. It is checked whenever it is read; what fails is thrown away and built again. Where the
folder cannot be written, a warning says so and export goes on without.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import secrets
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final

from crc32c import crc32c
from filelock import FileLock, Timeout
from platformdirs import user_cache_path

from trt_et.blob.codec import decode_blob
from trt_et.blob.model import EngineInfo
from trt_et.errors import BlobError, OptionError

__all__ = [
    "CACHE_VARIABLE",
    "DEFAULT_MAX_BYTES",
    "SIZE_VARIABLE",
    "BuildLock",
    "CacheChoice",
    "CacheEntry",
    "EngineCache",
    "choose_cache",
    "parse_size",
]

CACHE_VARIABLE: Final = "TRT_ET_CACHE"
SIZE_VARIABLE: Final = "TRT_ET_CACHE_SIZE"
DEFAULT_MAX_BYTES: Final = 20 << 30

_MAGIC: Final = b"trt-et1\n"
_HEADER: Final = struct.Struct("<8s64sQI")  # Magic, key, size and CRC-32C of the blob;
_CHECK: Final = struct.Struct("<I")  # then the CRC-32C of these.
_START: Final = _HEADER.size + _CHECK.size
_KEY: Final = re.compile(r"[0-9a-f]{64}")
_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:I?B)?", re.IGNORECASE)
_UNITS: Final = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}
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
        """The engine's metadata.

        Raises:
            BlobError: The entry is corrupt or gone.
        """
        return decode_blob(_read(self.path, self.key), verify=False).info


class EngineCache:
    """Engines on disk. Any number of processes can use one folder at once.

    Args:
        folder: Where; None: the user's cache folder. It is made when the first engine is stored.
        max_bytes: How large it may become: what was not used for longest is removed. None:
            ``TRT_ET_CACHE_SIZE``, else 20 GiB.

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
        try:
            blob = _read(path, key)
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
        file_lock = FileLock(self._folder("locks") / f"{key[:3]}.lock", thread_local=False)
        try:
            self._folder("locks").mkdir(parents=True, exist_ok=True)
            file_lock.acquire(timeout=-1 if wait else 0)
        except Timeout:
            return None
        except (OSError, NotImplementedError) as error:
            self._warn("locked", error)
            return BuildLock(self, key, None)
        return BuildLock(self, key, file_lock)

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
                decode_blob(_read(entry.path, entry.key), verify=False)
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

    # What follows is for BuildLock.

    def _store(self, key: str, blob: bytes) -> None:
        if _START + len(blob) > self.max_bytes:
            _log.info("an engine of %d bytes is more than the cache may hold", len(blob))
            return
        part = self._folder("partial") / f"{key}.{os.getpid()}.{secrets.token_hex(4)}"
        path = self._path(key)
        try:
            part.parent.mkdir(parents=True, exist_ok=True)
            path.parent.mkdir(parents=True, exist_ok=True)
            with part.open("xb") as file:
                file.write(_front(key, blob))
                file.write(blob)
                file.flush()
                os.fsync(file.fileno())
            # Should the new name not survive a power failure, the engine is built again.
            part.replace(path)
            self._unseen += _START + len(blob)
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
        except (Timeout, OSError, NotImplementedError):
            yield False
            return
        try:
            yield True
        finally:
            lock.release()

    def _folder(self, name: str) -> Path:
        return self.folder / "v1" / name

    def _path(self, key: str) -> Path:
        return self._folder("engines") / key[:2] / key

    def _warn(self, what: str, error: BaseException) -> None:
        if not self._warned:
            self._warned = True
            _log.warning(
                "the engine cache in %s cannot be %s (%s); export goes on without it. Another "
                "folder: %s=<folder>",
                self.folder,
                what,
                error,
                CACHE_VARIABLE,
            )


class BuildLock:
    """The right to build one engine; leave the ``with`` statement, or die, to give it back."""

    def __init__(self, cache: EngineCache, key: str, lock: FileLock | None) -> None:
        self._cache = cache
        self._key = key
        self._lock = lock

    def store(self, blob: bytes) -> None:
        """Put the engine into the cache. Whatever the disk says, this does not raise."""
        if self._lock is not None:
            self._cache._store(self._key, blob)

    def release(self) -> None:
        """Give it back; those who wait for it find what was stored."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def __enter__(self) -> BuildLock:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()


CacheChoice = EngineCache | str | os.PathLike[str] | bool | None


def choose_cache(choice: CacheChoice) -> EngineCache | None:
    """The cache that an option or the environment asks for; None: no cache.

    Args:
        choice: A cache, a folder, True (the user's cache folder), False (none), or None: what
            ``TRT_ET_CACHE`` says ("1" or "on", a folder; unset, "0" or "off": none).

    Raises:
        OptionError: It is something else.
    """
    if choice is None:
        said = os.environ.get(CACHE_VARIABLE, "").strip()
        if said.lower() in ("", "0", "off", "no", "false"):
            return None
        return EngineCache() if said.lower() in ("1", "on", "yes", "true") else EngineCache(said)
    if isinstance(choice, EngineCache):
        return choice
    if isinstance(choice, bool):
        return EngineCache() if choice else None
    if isinstance(choice, str | os.PathLike) and str(choice):
        return EngineCache(choice)
    raise OptionError(f"cache is {choice!r}; expected True, False, a folder or an EngineCache")


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


def _front(key: str, blob: bytes) -> bytes:
    head = _HEADER.pack(_MAGIC, key.encode(), len(blob), crc32c(blob))
    return head + _CHECK.pack(crc32c(head))


def _read(path: Path, key: str) -> bytes:
    """The blob of an entry.

    Raises:
        BlobError: It is not intact, or another key's.
        OSError: It cannot be read.
    """
    with path.open("rb", buffering=0) as file:
        head = file.read(_START)
        blob = file.read()  # At once, into the memory that stays.
    if len(head) != _START:
        raise BlobError(f"the cache entry is cut off after {len(head)} bytes")
    if head != _front(key, blob):
        magic, name, size, _ = _HEADER.unpack(head[: _HEADER.size])
        if magic != _MAGIC:
            raise BlobError("it is no cache entry of this version")
        if name != key.encode():
            raise BlobError("it is the cache entry of another key")
        if size != len(blob):
            raise BlobError(f"the cache entry holds {len(blob)} bytes of a blob of {size}")
        raise BlobError("the cache entry is corrupt: its checksum is wrong")
    return blob
