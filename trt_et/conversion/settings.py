"""Torch-TensorRT's settings, and its process-wide converter registry under them."""

from __future__ import annotations

from dataclasses import fields
from difflib import get_close_matches
from typing import Any

from trt_et.conversion.torch_tensorrt_import import torch_tensorrt
from trt_et.errors import OptionError


def converter_registry(settings: Any) -> Any:  # noqa: ANN401
    """Set the process-wide converter registry to ``settings``, which leak otherwise; return it."""
    torch_tensorrt()
    from torch_tensorrt.dynamo.conversion import DYNAMO_CONVERTERS

    DYNAMO_CONVERTERS.set_compilation_settings(settings)
    return DYNAMO_CONVERTERS


def make_settings(**options: Any) -> Any:  # noqa: ANN401
    """Return Torch-TensorRT's ``CompilationSettings`` with these fields.

    Raises:
        OptionError: A field does not exist.
    """
    trt = torch_tensorrt()
    from torch_tensorrt.dynamo._settings import CompilationSettings

    known = {field.name for field in fields(CompilationSettings)}
    unknown = sorted(set(options) - known)
    if unknown:
        close = get_close_matches(unknown[0], known, n=3)
        raise OptionError(
            f"{unknown[0]!r} is not a field of Torch-TensorRT's CompilationSettings"
            + (f"; did you mean {' or '.join(close)}?" if close else "")
        )
    # Its default timing cache is a file in /tmp that anybody may have written.
    chosen = {
        "min_block_size": 1,
        "device": trt.Device(gpu_id=0),
        "timing_cache_path": "",
        **options,
    }
    return CompilationSettings(**chosen)
