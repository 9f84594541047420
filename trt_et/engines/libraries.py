"""Lists the engine libraries, and makes a builder from its name.

A new library needs an entry here, a builder (an ``EngineBuilder``), and a
provider for the plugin (``trt_et/runtime/src/engine``). A library is imported when its builder is
made.
"""

from __future__ import annotations

import functools
import logging
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final

from trt_et.conversion.installed import (
    installed_packages,
    installed_variant,
    is_onnx_installed,
    uses_rtx_parser,
)
from trt_et.engines.base import EngineBuilder
from trt_et.errors import BuilderUnavailable, OptionError
from trt_et.requirements import install_command

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class EngineLibrary:
    """One engine library.

    Attributes:
        builders: The classes of its builders, ``module:class``, each with a check whether its
            packages are installed. The first whose packages are is taken; only that is imported.
        package: The package to install; empty if it is this one.
        about: A few words about the builder.
        is_chosen_by_auto: Whether ``builder="auto"`` may choose it.
        warning: Logged once in a process, after its engines are built.
    """

    builders: Mapping[str, Callable[[], bool]]
    package: str
    about: str
    is_chosen_by_auto: bool = True
    warning: str = ""

    def installed_builder(self) -> str | None:
        """Return the class of its builder here; None: no builder's packages are installed."""
        return next((name for name, is_there in self.builders.items() if is_there()), None)


LIBRARIES: Final[dict[str, EngineLibrary]] = {
    "tensorrt_rtx": EngineLibrary(
        {
            "trt_et.engines.tensorrt_rtx:TensorRTRTXBuilder": (
                lambda: installed_variant() == "tensorrt_rtx"
            ),
            "trt_et.engines.rtx_network:RtxParserBuilder": uses_rtx_parser,
        },
        "torch-tensorrt-rtx",
        "TensorRT-RTX; builds without a GPU",
    ),
    "tensorrt": EngineLibrary(
        {"trt_et.engines.tensorrt:TensorRTBuilder": lambda: installed_variant() == "tensorrt"},
        "torch-tensorrt",
        "TensorRT; builds on the GPU at hand",
    ),
    "onnx": EngineLibrary(
        {"trt_et.engines.onnx:OnnxBuilder": is_onnx_installed},
        "onnxscript",
        "networks; TensorRT builds the engine when it is first loaded",
        is_chosen_by_auto=False,
    ),
    "reference": EngineLibrary(
        {"trt_et.engines.reference.builder:ReferenceBuilder": lambda: True},
        "",
        "runs on simulated GPUs only",
        is_chosen_by_auto=False,
        warning="its engines run on simulated GPUs, by CPU kernels: they show that a "
        "program works, not how fast it is; a call can take seconds",
    ),
}
"""Engine libraries by their builder's name; ``auto`` takes the first one that is installed."""

BUILDER_NAMES: Final = ("auto", *LIBRARIES)


def check_builder_name(name: str) -> None:
    """Raise ``OptionError`` if no builder has this name."""
    if name not in BUILDER_NAMES:
        close = get_close_matches(name.lower(), BUILDER_NAMES, n=2, cutoff=0.4)
        near = f"; did you mean {' or '.join(close)}?" if close else ""
        raise OptionError(f"builder {name!r} is unknown; known: {', '.join(BUILDER_NAMES)}{near}")


def make_builder(builder: str | EngineBuilder) -> EngineBuilder:
    """Return the builder of that name, or the object itself if it is a builder.

    Raises:
        OptionError: The name is unknown, or the object is no builder.
        BuilderUnavailable: The builder's packages are not installed, or ``auto`` finds none.
    """
    if not isinstance(builder, str):
        if isinstance(builder, EngineBuilder) and builder.name:
            return builder
        given = type(builder).__name__
        if isinstance(builder, type):
            given = f"the class {builder.__name__}"
        raise OptionError(
            f"builder is {given}; expected one of {', '.join(BUILDER_NAMES)}, or "
            "an object with a name whose class derives from trt_et.engines.EngineBuilder"
        )
    check_builder_name(builder)
    name = _choose() if builder == "auto" else builder
    library = LIBRARIES[name]
    if name in ("tensorrt", "tensorrt_rtx") and len(installed_packages()) > 1:
        raise BuilderUnavailable(
            f"builder={builder!r} is not available: torch-tensorrt and torch-tensorrt-rtx are both "
            "installed; expected one of them, because both provide the module torch_tensorrt. Run: "
            f"pip uninstall torch-tensorrt torch-tensorrt-rtx && {install_command(library.package)}"
        )
    chosen = library.installed_builder()
    if chosen is None:
        command = install_command(library.package)
        if builder == "onnx":
            raise BuilderUnavailable(
                "builder='onnx' is not available: onnx and onnxscript are not both installed. Run: "
                'pip install "trt-et[onnx]"'
            )
        if variant := installed_variant():
            other = LIBRARIES[variant].package
            raise BuilderUnavailable(
                f"builder={builder!r} is not available: {other} is installed, and "
                f"{library.package} has the same module. Use another environment, or run: "
                f"pip uninstall {other} && {command}"
            )
        raise BuilderUnavailable(
            f"builder={builder!r} is not available: Torch-TensorRT is not installed. Run: {command}"
            + (f", or without it: {_install_parser()}" if name == "tensorrt_rtx" else "")
        )
    made: EngineBuilder = pkgutil.resolve_name(chosen)()
    return made


@functools.cache
def warn_once(name: str) -> None:
    """Log the warning about the engines of a builder, if there is one, once in a process."""
    if name in LIBRARIES and LIBRARIES[name].warning:
        _log.warning("builder=%r: %s", name, LIBRARIES[name].warning)


def _install_parser() -> str:
    return install_command("tensorrt-rtx", "onnx", "onnxscript")


def _choose() -> str:
    candidates = {name: entry for name, entry in LIBRARIES.items() if entry.is_chosen_by_auto}
    for name, library in candidates.items():
        if library.installed_builder():
            return name
    commands = "\n".join(
        f"  {install_command(entry.package)}  ({entry.about})" for entry in candidates.values()
    )
    commands += f"\n  {_install_parser()}  (TensorRT-RTX without Torch-TensorRT)"
    raise BuilderUnavailable(
        "builder='auto' found no TensorRT to build engines with. Install one:\n"
        f"{commands}\n"
        "or ask for builder='reference', which runs on simulated GPUs only"
    )
