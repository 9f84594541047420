"""Which cache an option, or the environment, asks for."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from typing import Final

from trt_et.cache.engine_cache import EngineCache
from trt_et.errors import OptionError

__all__ = ["CACHE_VARIABLE", "CacheChoice", "choose_cache", "temporary_cache"]

CACHE_VARIABLE: Final = "TRT_ET_CACHE"

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


def temporary_cache() -> EngineCache:
    """A cache in a folder of its own, which goes with it."""
    folder = tempfile.mkdtemp(prefix="trt-et-")
    cache = EngineCache(folder)
    weakref.finalize(cache, shutil.rmtree, folder, ignore_errors=True)
    return cache
