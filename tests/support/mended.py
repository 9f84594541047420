"""Which workarounds the installed releases no longer need."""

from __future__ import annotations

from importlib.metadata import version

from packaging.version import Version

from trt_et.conversion.entries import Rewrite
from trt_et.conversion.registry import REWRITES


def is_fixed(name: str) -> bool:
    """Whether the registry says that the installed release does without a rewrite."""
    (step,) = (s for s in REWRITES if isinstance(s, Rewrite) and s.apply.__name__ == name)
    return step.is_fixed()


def is_installed(package: str, release: str) -> bool:
    """Whether a package is there in this release or a later one."""
    return Version(version(package)) >= Version(release)
