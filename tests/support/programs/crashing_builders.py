"""Builders whose builds end their process, for real; importable wherever they are to run."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

from tests.support.mended import leave_out
from trt_et.engines import BuildRequest, make_builder

WORKAROUNDS = ("inputs of attentions", "results of attentions")


def remove_workarounds() -> None:
    """Let the attentions end this process that end TensorRT-RTX 1.5's builder."""
    leave_out(WORKAROUNDS)


class WithoutWorkarounds:
    """TensorRT-RTX's builder, as it would be without our rewrites."""

    name = "tensorrt_rtx"

    def fingerprint(self) -> str:
        return "without workarounds"

    def build(self, request: BuildRequest) -> bytes:
        remove_workarounds()
        return make_builder("tensorrt_rtx").build(request)


class CrashingOn:
    """Reference engines; a partition that holds all of some operators aborts, or is killed."""

    name = "reference"

    def __init__(self, *operators: str, number: int = signal.SIGABRT) -> None:
        self.operators = operators
        self.number = number

    def fingerprint(self) -> str:
        return "the same, crashing or not"

    def build(self, request: BuildRequest) -> bytes:
        targets = {str(node.target) for node in request.lowered.program.graph.nodes}
        if targets.issuperset(self.operators):
            os.kill(os.getpid(), self.number)
        return make_builder("reference").build(request)


class KilledOnce(CrashingOn):
    """Killed the first time only, as by a memory that is full for the moment."""

    def __init__(self, marker: Path) -> None:
        super().__init__()
        self.marker = marker

    def build(self, request: BuildRequest) -> bytes:
        with contextlib.suppress(FileExistsError):
            self.marker.touch(exist_ok=False)
            os.kill(os.getpid(), signal.SIGKILL)
        return make_builder("reference").build(request)
