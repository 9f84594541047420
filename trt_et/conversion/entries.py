"""The types of the registry's entries (``registry.py``): refusals, rewrites and converters."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

from torch.fx import GraphModule, Node

from trt_et.conversion.installed import installed_variant

__all__ = ["NEEDED_WITH", "Converter", "Refusal", "Rewrite", "Step", "resolve"]

NEEDED_WITH: Final = "Torch-TensorRT 2.13"
"""The release that the registry's entries were needed for, unless they name another.

``test_rewrites_are_needed.py`` and ``test_workarounds_are_needed.py`` in ``tests/conversion`` fail
once an entry is no longer needed.
"""


@dataclass(frozen=True)
class Refusal:
    """Calls that stay out of an engine although Torch-TensorRT has a converter.

    Attributes:
        operators: The operators whose calls ``reason`` checks.
        reason: Returns why a call is refused; None if it is not.
        needed_with: The library and version that needed the refusal.
        fixed_in: The package and its release that no longer need it; see :class:`Rewrite`.
    """

    operators: tuple[Any, ...]
    reason: Callable[[Node], str | None]
    needed_with: str = NEEDED_WITH
    fixed_in: tuple[str, str] | None = None

    def is_fixed(self) -> bool:
        """Check whether the installed release no longer needs it."""
        return _is_installed(self.fixed_in)


class Step(Enum):
    """A step among the rewrites that needs more than the graph."""

    UPDATE_IN_PLACE = "updates of KV caches become write_rows (rewrites/kv_cache_update.py)"
    DECOMPOSE = "DECOMPOSITIONS, and Torch-TensorRT's decompositions (decompose.py)"


@dataclass(frozen=True)
class Rewrite:
    """One change of a partition's graph; its function's module names the fault it works around.

    Attributes:
        apply: Changes the graph in place.
        before: Rewrites and steps that must come later, each with the reason.
        library: The engine library that needs it (a builder's name); None: every library.
        needed_with: The library and version that needed the rewrite.
        fixed_in: The package and its release that no longer need it, checked by
            ``tests/conversion/test_rewrites_are_needed.py``. From that release on it is not
            applied. Delete the rewrite when ``pyproject.toml`` allows no older release.
    """

    apply: Callable[[GraphModule], None]
    before: Mapping[Callable[[GraphModule], None] | Step, str] = field(default_factory=dict)
    library: str | None = None
    needed_with: str = NEEDED_WITH
    fixed_in: tuple[str, str] | None = None

    def is_needed(self, library: str) -> bool:
        """Check whether the installed release of an engine library (a builder's name) needs it."""
        return self.library in (None, library) and not self.is_fixed()

    def is_fixed(self) -> bool:
        """Check whether the installed release no longer needs it."""
        return _is_installed(self.fixed_in)


@dataclass(frozen=True)
class Converter:
    """A converter of trt-et, as the names ``module:function`` below ``conversion.converters``.

    Names, because those modules import TensorRT, and the registry must load on a machine without
    TensorRT.

    Attributes:
        function: Adds the layers: ``(ctx, node, args, kwargs) -> ITensor``.
        available: Checks whether this TensorRT has the layer: ``() -> bool``. Empty: every
            TensorRT has it.
        applies: Checks whether it converts this call: ``(args) -> bool``. Empty: it converts every
            call.
        needed_with: The library and version whose converter is wrong or missing.
    """

    function: str
    available: str = ""
    applies: str = ""
    needed_with: str = NEEDED_WITH

    def load(self) -> Callable[..., Any]:
        """Import the function that adds the layers."""
        return resolve(self.function)

    def is_available(self) -> bool:
        """Check whether this TensorRT has the layer; import TensorRT only if that decides."""
        return not self.available or bool(resolve(self.available)())

    def converts(self, args: Any) -> bool:  # noqa: ANN401
        """Check whether it converts a call with these arguments, whose tensors are TensorRT's."""
        return not self.applies or bool(resolve(self.applies)(args))


def resolve(name: str) -> Callable[..., Any]:
    """Import a function of ``conversion/converters`` by its name ``module:function``."""
    function: Callable[..., Any] = pkgutil.resolve_name(f"trt_et.conversion.converters.{name}")
    return function


@cache
def _is_installed(release: tuple[str, str] | None) -> bool:
    """Check whether Torch-TensorRT uses a package of this release or a later one."""
    from packaging.version import Version

    if release is None:
        return False
    package, minimum = release
    # Both may be installed: Torch-TensorRT uses the one that it was made for.
    used = package.replace("-", "_") == installed_variant()
    if package in ("tensorrt", "tensorrt-rtx") and not used:
        return False
    try:
        return Version(version(package)) >= Version(minimum)
    except PackageNotFoundError:
        return False
