"""The counters of simulated GPUs."""

from __future__ import annotations

import ctypes
from typing import Final

import trt_et.runtime

__all__ = ["read_counter", "read_counters"]

_WAYS: Final = ("h2d", "d2h", "d2d", "peer")
_COUNTERS: Final = (
    *("mallocs", "frees"),
    *(f"copies_{way}" for way in _WAYS),
    *(f"bytes_{way}" for way in _WAYS),
    *("synchronizations", "launches", "calls"),
)


def read_counter(name: str) -> int | None:
    """Read a counter of ``trt_et_counter()`` in ``runtime.h``; return None if it does not exist."""
    library = ctypes.CDLL(str(trt_et.runtime.plugin_path()))
    value = ctypes.c_uint64()
    exists = library.trt_et_counter(name.encode(), ctypes.byref(value)) == 0
    return value.value if exists else None


def read_counters() -> dict[str, int]:
    """Read all counters that exist; real GPUs count no copies, waits or launches."""
    values = {name: read_counter(name) for name in _COUNTERS}
    return {name: value for name, value in values.items() if value is not None}
