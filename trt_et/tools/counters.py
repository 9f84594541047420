"""What the simulated GPUs have counted."""

from __future__ import annotations

import ctypes

import trt_et.runtime

__all__ = ["read_counters"]

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


class _Stats(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_uint64) for name in _COUNTERS),
        ("live_bytes", ctypes.c_uint64 * 16),
    )


def read_counters() -> dict[str, int]:
    """Copies, waits and launches so far; empty on real GPUs, which count nothing."""
    library = ctypes.CDLL(str(trt_et.runtime.plugin_path()))
    found = _Stats()
    if library.trt_et_stats(ctypes.byref(found)) != 0:
        return {}
    return {name: int(getattr(found, name)) for name in _COUNTERS}
