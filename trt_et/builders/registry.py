"""The engine libraries, and from a builder's name to a builder.

A further library adds one entry to :data:`LIBRARIES`, its builder, and its provider in the runtime;
see ``docs/internals/add-an-engine-library.md``. Nothing heavy is imported before a builder is made.
"""

from __future__ import annotations

import functools
import logging
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from trt_et.builders.base import EngineBuilder
from trt_et.conversion.installed import installed_variant
from trt_et.errors import BuilderUnavailable, OptionError
from trt_et.requirements import install_command

__all__ = ["BUILDER_NAMES", "LIBRARIES", "EngineLibrary", "make_builder"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class EngineLibrary:
    """One engine library.

    Attributes:
        builder: Its builder's class, ``module:class`` below ``trt_et.builders``; named, so that
            only the chosen one is imported.
        is_installed: Whether what the builder needs is installed.
        package: What has to be installed for it; empty where this package brings it.
        about: What the builder needs and makes, in a few words.
        is_chosen_by_auto: Whether ``builder="auto"`` may choose it.
        warning: Logged once in a process, when its builder is made.
    """

    builder: str
    is_installed: Callable[[], bool]
    package: str
    about: str
    is_chosen_by_auto: bool = True
    warning: str = ""


LIBRARIES: Final[dict[str, EngineLibrary]] = {
    "tensorrt_rtx": EngineLibrary(
        "tensorrt_rtx:TensorRTRTXBuilder",
        lambda: installed_variant() == "tensorrt_rtx",
        "torch-tensorrt-rtx",
        "TensorRT-RTX; builds without a GPU",
    ),
    "tensorrt": EngineLibrary(
        "tensorrt:TensorRTBuilder",
        lambda: installed_variant() == "tensorrt",
        "torch-tensorrt",
        "TensorRT; builds on the GPU at hand",
    ),
    "reference": EngineLibrary(
        "reference.builder:ReferenceBuilder",
        lambda: True,
        "",
        "runs on simulated GPUs only",
        is_chosen_by_auto=False,
        warning="its engines are for simulated GPUs, where CPU kernels run them: they show that a "
        "program works, not how fast it is; a call can take seconds",
    ),
}
"""By the builder's name, in the order in which ``auto`` prefers them."""

BUILDER_NAMES: Final = ("auto", *LIBRARIES)


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
    name = _choose() if builder == "auto" else builder
    library = LIBRARIES[name]
    if not library.is_installed():
        found = installed_variant()
        other = f"torch_tensorrt here uses {found}" if found else "Torch-TensorRT is not installed"
        raise BuilderUnavailable(
            f"builder={builder!r} is not available: {other}. "
            f"Run: {install_command(library.package)}"
        )
    if library.warning:
        _warn_once(name, library.warning)
    made: EngineBuilder = pkgutil.resolve_name(f"trt_et.builders.{library.builder}")()
    return made


@functools.cache
def _warn_once(name: str, warning: str) -> None:
    _log.warning("builder=%r: %s", name, warning)


def _choose() -> str:
    candidates = {name: entry for name, entry in LIBRARIES.items() if entry.is_chosen_by_auto}
    for name, library in candidates.items():
        if library.is_installed():
            return name
    commands = "\n".join(
        f"  {install_command(entry.package)}  ({entry.about})" for entry in candidates.values()
    )
    raise BuilderUnavailable(
        "builder='auto' found no TensorRT to build engines with. Install one:\n"
        f"{commands}\n"
        "or ask for builder='reference', which runs on simulated GPUs only"
    )
