"""The type of an entry: everything that trt-et does about one operator (``operators/``)."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import Enum
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from torch.fx import Node

from trt_et.conversion.installed import engine_library


class Step(Enum):
    """A step of the preparation that needs more than a call."""

    HOLD_UINT8 = "uint8 tensors become float32 (operators/uint8.py)"
    UPDATE_IN_PLACE = "updates of KV caches become write_rows (operators/caches.py)"
    DECOMPOSE = "our decompositions, and Torch-TensorRT's (decompose.py)"


@dataclass(frozen=True)
class Operator:
    """What trt-et does about calls that Torch-TensorRT or TensorRT converts wrongly, or not at all.

    ``tests/conversion/test_operators_are_needed.py`` fails once a part of it is no longer needed.

    Attributes:
        name: The operator, for messages and tests; unique.
        targets: The operators whose calls it takes.
        unsupported: Returns why a call stays out of an engine, or None.
        rewrite: Changes a call in place, or returns the node that replaces it. It takes the node of
            a graph of plain ATen, with ``val`` metadata and constants as attributes.
        decompose: A function of the operator's arguments, written in torch, which is traced in
            place of a call. It returns ``NotImplemented`` for arguments that it does not take.
        add_layer: Adds TensorRT's layers, and returns their result:
            ``(layers, args, kwargs) -> ITensor``. Tensors are TensorRT's, or torch's if constant.
        library: The engine library that needs it (a builder's name); None: every library.
        fixed_in: The package and its release that no longer need it; from there on the entry is
            skipped. Delete the entry when ``pyproject.toml`` allows no older release.
        upstream: The report in ``docs/internals/upstream``, without its suffix; empty if none.
    """

    name: str
    targets: Collection[Any]
    unsupported: Callable[[Node], str | None] | None = None
    rewrite: Callable[[Node], Node | None] | None = None
    decompose: Callable[..., Any] | None = None
    add_layer: Callable[..., Any] | None = None
    library: str | None = None
    fixed_in: tuple[str, str] | None = None
    upstream: str = ""

    def is_fixed(self) -> bool:
        """Check whether the installed release no longer needs it."""
        return _is_installed(self.fixed_in)


@cache
def _is_installed(release: tuple[str, str] | None) -> bool:
    """Check whether a package of this release or a later one is used."""
    from packaging.version import Version

    if release is None:
        return False
    package, minimum = release
    # Both may be installed: Torch-TensorRT uses the one that it was made for.
    used = package.replace("-", "_") == engine_library()
    if package in ("tensorrt", "tensorrt-rtx") and not used:
        return False
    try:
        return Version(version(package)) >= Version(minimum)
    except PackageNotFoundError:
        return False
