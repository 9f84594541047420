"""Finds the installed Torch-TensorRT without importing it."""

from __future__ import annotations

import importlib.util
from functools import cache
from importlib.metadata import packages_distributions

__all__ = ["installed_variant"]


@cache
def installed_variant() -> str | None:
    """Return the installed Torch-TensorRT's library: ``"tensorrt"`` or ``"tensorrt_rtx"``, or None.

    Two distributions install the module ``torch_tensorrt``, one for each library.
    """
    if importlib.util.find_spec("torch_tensorrt") is None:
        return None
    owners = {
        name.replace("_", "-").lower()
        for name in packages_distributions().get("torch_tensorrt", ())
    }
    return "tensorrt_rtx" if "torch-tensorrt-rtx" in owners else "tensorrt"
