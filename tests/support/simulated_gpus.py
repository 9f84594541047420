"""The runtime in the tests' own process: every test there sees the same GPUs.

CUDA is chosen once per process, and any two test files may run in one.
"""

from __future__ import annotations

import trt_et.runtime


def load_runtime() -> None:
    """Load the plugin, on two simulated GPUs."""
    trt_et.runtime.load(cuda="simulated:2")
