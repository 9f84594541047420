"""The runtime in the tests' own process: every test there sees the same GPUs.

CUDA is chosen once per process, and any two test files may run in one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree

import trt_et.runtime


def load_runtime() -> None:
    """Load the plugin, on two simulated GPUs."""
    trt_et.runtime.load(cuda="simulated:2")


def load_program(pte: bytes) -> Any:
    from executorch.runtime import Runtime

    load_runtime()
    return Runtime.get().load_program(pte)


def load_method(pte: bytes) -> Any:
    """The method ``forward`` of a program, in this process."""
    program = load_program(pte)
    method = program.load_method("forward")
    method.program = program  # The method reads its bytes.
    return method


def check(
    pte: bytes, model: Callable[..., Any], *calls: tuple, atol: float = 1e-4, rtol: float = 1e-4
) -> float:
    """Call ``forward`` in this process, and return how far it is from the model: within atol."""
    method = load_method(pte)
    # A call writes over the results of the one before.
    found = [[t.clone() for t in method.execute(pytree.tree_leaves(call))] for call in calls]
    largest = 0.0
    for outputs, call in zip(found, calls, strict=True):
        with torch.no_grad():
            expected = pytree.tree_leaves(model(*call))
        torch.testing.assert_close(outputs, expected, atol=atol, rtol=rtol)
        for have, want in zip(outputs, expected, strict=True):
            if have.numel():
                largest = max(largest, (have.double() - want.double()).abs().max().item())
    return largest
