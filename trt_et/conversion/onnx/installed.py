"""Finds the installed ONNX packages without importing them."""

from __future__ import annotations

import importlib.util
from functools import cache
from importlib.metadata import version

__all__ = ["is_installed", "onnx_version"]


@cache
def is_installed() -> bool:
    """Return whether the packages of the extra ``onnx`` are installed."""
    return all(importlib.util.find_spec(name) is not None for name in ("onnx", "onnxscript"))


def onnx_version() -> str:
    """Return the version of the package ``onnx``."""
    return version("onnx")
