"""Finds the installed Torch-TensorRT and ONNX packages without importing them."""

from __future__ import annotations

import importlib.util
from functools import cache
from importlib.metadata import packages_distributions, version


@cache
def installed_packages() -> set[str]:
    """Return the packages that install the module ``torch_tensorrt``; at most one should.

    To ask for them takes half a second.
    """
    owners = packages_distributions().get("torch_tensorrt", ())
    return {name.replace("_", "-").lower() for name in owners}


@cache
def installed_variant() -> str | None:
    """Return the installed Torch-TensorRT's library: ``"tensorrt"`` or ``"tensorrt_rtx"``, or None.

    Two distributions install the module ``torch_tensorrt``, one for each library.
    """
    if importlib.util.find_spec("torch_tensorrt") is None:
        return None
    return "tensorrt_rtx" if "torch-tensorrt-rtx" in installed_packages() else "tensorrt"


@cache
def is_onnx_installed() -> bool:
    """Return whether the packages of the extra ``onnx`` are installed."""
    return all(importlib.util.find_spec(name) is not None for name in ("onnx", "onnxscript"))


def onnx_version() -> str:
    """Return the version of the package ``onnx``."""
    return version("onnx")


@cache
def uses_rtx_parser() -> bool:
    """Return whether TensorRT-RTX engines are built without Torch-TensorRT here (``rtx-light``).

    TensorRT-RTX and the packages that make ONNX models are installed, and Torch-TensorRT is not.
    """
    has_rtx = importlib.util.find_spec("tensorrt_rtx") is not None
    return installed_variant() is None and has_rtx and is_onnx_installed()


@cache
def rtx_version() -> str:
    """Return the version of TensorRT-RTX, which one package for each CUDA installs."""
    (owner, *_) = packages_distributions()["tensorrt_rtx"]
    return version(owner)


def engine_library() -> str | None:
    """Return the library that builds engines here, by its builder's name; None if there is none."""
    return "tensorrt_rtx" if uses_rtx_parser() else installed_variant()
