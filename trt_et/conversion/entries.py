"""What the entries of the registry (``registry.py``) say about an operator or a rewrite."""

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

__all__ = ["SEEN_WITH", "Converter", "Refusal", "Rewrite", "Step", "resolve"]

SEEN_WITH: Final = "Torch-TensorRT 2.13"
"""What the registry's entries were needed for, where they name nothing else.

``test_rewrites_are_needed.py`` and ``test_workarounds_are_needed.py`` in ``tests/conversion`` fail
once one is no longer needed.
"""


@dataclass(frozen=True)
class Refusal:
    """Calls that stay out of an engine although Torch-TensorRT has a converter.

    Attributes:
        operators: Asked about only these.
        reason: Why a call is refused; None where it is not.
        seen_with: The library and version that it was needed for.
        mended_in: The package and its release that no longer need it; see :class:`Rewrite`.
    """

    operators: tuple[Any, ...]
    reason: Callable[[Node], str | None]
    seen_with: str = SEEN_WITH
    mended_in: tuple[str, str] | None = None

    def is_mended(self) -> bool:
        """Whether the installed release does without it."""
        return _is_installed(self.mended_in)


class Step(Enum):
    """What happens among the rewrites that is more than a function of the graph."""

    UPDATE_IN_PLACE = "updates of KV caches become write_rows (rewrites/kv_cache_update.py)"
    DECOMPOSE = "DECOMPOSITIONS, and those of Torch-TensorRT (decompose.py)"


@dataclass(frozen=True)
class Rewrite:
    """One change of a partition's graph; its function's module says what it works around.

    Attributes:
        apply: Changes the graph in place.
        before: Rewrites and steps that must come later, each with the reason.
        accepts: Calls that it replaces by what TensorRT has, whatever Torch-TensorRT says of them.
        library: The engine library that needs it (a builder's name); None: every one.
        seen_with: The library and version that it was needed for.
        mended_in: The package and its release that no longer need it, as
            ``tests/conversion/test_rewrites_are_needed.py`` sees. It is not applied from there on,
            and goes when ``pyproject.toml`` allows none that is older.
    """

    apply: Callable[[GraphModule], None]
    before: Mapping[Callable[[GraphModule], None] | Step, str] = field(default_factory=dict)
    accepts: Callable[[Node], bool] | None = None
    library: str | None = None
    seen_with: str = SEEN_WITH
    mended_in: tuple[str, str] | None = None

    def is_needed(self, library: str) -> bool:
        """Whether the installed release of an engine library, by its builder's name, needs it."""
        return self.library in (None, library) and not self.is_mended()

    def is_mended(self) -> bool:
        """Whether the installed release does without it."""
        return _is_installed(self.mended_in)


@dataclass(frozen=True)
class Converter:
    """A converter of ours. Functions are named ``module:function`` below ``conversion.converters``.

    They are named because their modules import TensorRT, which the support check on a machine
    without it must not need.

    Attributes:
        function: Adds the layers: ``(ctx, node, args, kwargs) -> ITensor``.
        takes_every_call: Whether the support check need not ask Torch-TensorRT about a call.
        available: Whether this TensorRT has the layer: ``() -> bool``. Empty: every one has.
        applies: Whether it converts this call: ``(args) -> bool``. Empty: it converts every call.
        seen_with: The library and version whose converter is wrong, or that has none.
    """

    function: str
    takes_every_call: bool = False
    available: str = ""
    applies: str = ""
    seen_with: str = SEEN_WITH

    def load(self) -> Callable[..., Any]:
        """The function that adds the layers."""
        return resolve(self.function)

    def is_available(self) -> bool:
        """Whether this TensorRT has the layer; imports TensorRT where that is the question."""
        return not self.available or bool(resolve(self.available)())

    def converts(self, args: Any) -> bool:  # noqa: ANN401
        """Whether it converts a call with these arguments, tensors as TensorRT's."""
        return not self.applies or bool(resolve(self.applies)(args))


def resolve(name: str) -> Callable[..., Any]:
    """A function of ``conversion/converters``, by its name ``module:function``."""
    function: Callable[..., Any] = pkgutil.resolve_name(f"trt_et.conversion.converters.{name}")
    return function


@cache
def _is_installed(release: tuple[str, str] | None) -> bool:
    """Whether a package is there in this release or a later one, and Torch-TensorRT uses it."""
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
