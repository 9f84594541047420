"""What the simulated GPUs have counted."""

from __future__ import annotations

import ctypes

import trt_et.runtime

__all__ = ["read_counter", "read_counters"]

_COUNTERS = (
    "mallocs",
    "frees",
    "copies_h2d",
    "copies_d2h",
    "copies_d2d",
    "copies_peer",
    "bytes_h2d",
    "bytes_d2h",
    "bytes_d2d",
    "bytes_peer",
    "synchronizations",
    "launches",
    "calls",
)


def read_counter(name: str) -> int | None:
    """One of the counters of ``trt_et_counter()`` in ``runtime.h``; None where there is no such."""
    library = ctypes.CDLL(str(trt_et.runtime.plugin_path()))
    value = ctypes.c_uint64()
    found = library.trt_et_counter(name.encode(), ctypes.byref(value)) == 0
    return value.value if found else None


def read_counters() -> dict[str, int]:
    """Copies, waits and launches so far; empty on real GPUs, which count nothing."""
    values = {name: read_counter(name) for name in _COUNTERS}
    return {name: value for name, value in values.items() if value is not None}
