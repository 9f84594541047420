"""From a builder's name to a builder; nothing heavy is imported before it builds."""

from __future__ import annotations

import importlib.util
from functools import cache
from importlib.metadata import packages_distributions
from typing import Final

from trt_et.builders.base import EngineBuilder
from trt_et.errors import BuilderUnavailable, OptionError

__all__ = ["BUILDER_NAMES", "installed_variant", "make_builder"]

BUILDER_NAMES: Final = ("auto", "tensorrt", "tensorrt_rtx", "reference")

_INSTALL: Final = {
    "tensorrt": 'pip install "trt-et[tensorrt]"',
    "tensorrt_rtx": 'pip install "trt-et[rtx]"',
}


@cache
def installed_variant() -> str | None:
    """``"tensorrt"`` or ``"tensorrt_rtx"``, after the installed Torch-TensorRT; None without one.

    Both distributions install the module ``torch_tensorrt``; which one did decides which TensorRT
    it uses.
    """
    if importlib.util.find_spec("torch_tensorrt") is None:
        return None
    owners = {
        name.replace("_", "-").lower()
        for name in packages_distributions().get("torch_tensorrt", ())
    }
    return "tensorrt_rtx" if "torch-tensorrt-rtx" in owners else "tensorrt"


def make_builder(builder: str | EngineBuilder) -> EngineBuilder:
    """The builder of that name, or the object itself if it is a builder already.

    Raises:
        OptionError: The name is unknown, or the object is no builder.
        BuilderUnavailable: What the builder needs is not installed, or ``auto`` finds nothing.
    """
    if not isinstance(builder, str):
        if isinstance(builder, EngineBuilder):
            return builder
        raise OptionError(
            f"builder is {type(builder).__name__}; expected one of {', '.join(BUILDER_NAMES)}, or "
            "an object with a name and a build(request) method"
        )
    if builder not in BUILDER_NAMES:
        raise OptionError(f"builder {builder!r} is unknown; known: {', '.join(BUILDER_NAMES)}")
    if builder == "reference":
        from trt_et.builders.reference.builder import ReferenceBuilder

        return ReferenceBuilder()
    found = installed_variant()
    wanted = found if builder == "auto" else builder
    if wanted is None:
        raise BuilderUnavailable(
            "builder='auto' found no TensorRT to build engines with. Install one:\n"
            f"  {_INSTALL['tensorrt_rtx']}       (TensorRT-RTX; builds without a GPU)\n"
            f"  {_INSTALL['tensorrt']}  (TensorRT; builds on the GPU at hand)\n"
            "or ask for builder='reference', which runs on simulated GPUs only"
        )
    if wanted != found:
        other = f"torch_tensorrt here uses {found}" if found else "Torch-TensorRT is not installed"
        raise BuilderUnavailable(
            f"builder={builder!r} is not available: {other}. Run: {_INSTALL[wanted]}"
        )
    if wanted == "tensorrt":
        from trt_et.builders.tensorrt import TensorRTBuilder

        return TensorRTBuilder()
    from trt_et.builders.tensorrt_rtx import TensorRTRTXBuilder

    return TensorRTRTXBuilder()
