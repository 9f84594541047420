"""A builder whose builds end their process, for real; importable wherever it is to run."""

from __future__ import annotations

from tests.support.mended import leave_out
from trt_et.engines import BuildRequest, EngineBuilder, make_builder

WORKAROUNDS = ("inputs of attentions", "results of attentions", "permute")


def remove_workarounds() -> None:
    """Let the networks end this process that end TensorRT-RTX's builder."""
    leave_out(WORKAROUNDS)


class WithoutWorkarounds(EngineBuilder):
    """TensorRT-RTX's builder, as it would be without our rewrites."""

    name = "tensorrt_rtx"

    def fingerprint(self) -> str:
        return "without workarounds"

    def build(self, request: BuildRequest) -> bytes:
        remove_workarounds()
        return make_builder("tensorrt_rtx").build(request)
