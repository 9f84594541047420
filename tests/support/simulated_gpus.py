"""The runtime in the tests' own process: every test there sees the same GPUs.

CUDA is chosen once per process, and any two test files may run in one.
"""

from __future__ import annotations

from typing import Any

import trt_et.runtime


def load_runtime() -> None:
    """Load the plugin, on two simulated GPUs."""
    trt_et.runtime.load(cuda="simulated:2")


def load_program(pte: bytes) -> Any:
    """A program, in this process."""
    from executorch.runtime import Runtime

    load_runtime()
    return Runtime.get().load_program(pte)


def load_method(pte: bytes) -> Any:
    """The method ``forward`` of a program, in this process."""
    program = load_program(pte)
    method = program.load_method("forward")
    method.program = program  # The method reads its bytes.
    return method
