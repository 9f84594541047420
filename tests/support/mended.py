"""Which workarounds the installed releases no longer need, and conversion without some of them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from importlib.metadata import version

from packaging.version import Version

from trt_et.conversion import stages
from trt_et.conversion.decompose import decomposed_operators
from trt_et.conversion.operator import Operator

PARTS = ("unsupported", "rewrite", "decompose", "add_layer")


def entry(name: str) -> Operator:
    (one,) = (e for e in stages.OPERATORS if isinstance(e, Operator) and e.name == name)
    return one


def is_fixed(name: str) -> bool:
    """Whether the registry says that the installed release does without an entry."""
    return entry(name).is_fixed()


def leave_out(names: Collection[str], parts: Collection[str] = PARTS) -> None:
    """Convert without some parts of entries; ``stages.OPERATORS`` has to be put back."""
    stages.OPERATORS = tuple(  # type: ignore[misc]
        replace(e, **dict.fromkeys(parts)) if isinstance(e, Operator) and e.name in names else e
        for e in stages.OPERATORS
    )
    decomposed_operators.cache_clear()


def is_installed(package: str, release: str) -> bool:
    """Whether a package is there in this release or a later one."""
    return Version(version(package)) >= Version(release)
