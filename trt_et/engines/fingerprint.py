"""Fingerprints of builders: the versions of libraries, and our own code."""

from __future__ import annotations

import hashlib
import platform
import sys
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

_TENSORRT: Final = (
    "torch-tensorrt",
    "torch-tensorrt-rtx",
    "tensorrt",
    "tensorrt-cu12",
    "tensorrt-cu13",
    "tensorrt-rtx",
    "tensorrt-rtx-cu12",
    "tensorrt-rtx-cu13",
)


def target_platform() -> str:
    """Return the operating system and processor in Torch-TensorRT's spelling: ``linux_x86_64``."""
    return f"{sys.platform}_{platform.machine().lower()}"


@cache
def fingerprint_of(*facts: str, tensorrt: bool) -> str:
    """Return a fingerprint; no library is imported.

    Args:
        facts: Other facts that this builder's engines depend on, such as a GPU's name.
        tensorrt: Whether Torch-TensorRT and TensorRT make the engines.
    """
    libraries = ("torch", "executorch", *(_TENSORRT if tensorrt else ()))
    parts = [f"{name}={found}" for name in libraries if (found := _version(name))]
    return "; ".join([f"trt-et={_own_code()}", *parts, target_platform(), *facts])


def has_foreign_converters() -> bool:
    """Check for registered converters that are not Torch-TensorRT's: they have no version.

    Nothing is imported: a process that registers converters has loaded Torch-TensorRT.
    """
    registry = sys.modules.get("torch_tensorrt.dynamo.conversion._ConverterRegistry")
    if registry is None:
        return False
    return any(
        not str(getattr(support.converter_implementation, "__module__", "")).startswith(
            "torch_tensorrt."
        )
        for supports in registry.DYNAMO_ATEN_CONVERTERS.values()
        for support in supports
    )


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


@cache
def _own_code() -> str:
    return code_digest(Path(__file__).parent.parent)


def code_digest(package: Path) -> str:
    """Return a digest of a package's Python files and their paths, without ``runtime/``.

    ``runtime/`` runs engines; it has no part in building them.
    """
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        name = path.relative_to(package).as_posix()
        if not name.startswith("runtime/"):
            digest.update(name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]
