"""Torch-TensorRT's settings, and its process-wide converter registry under them."""

from __future__ import annotations

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
        OptionError: This release lacks a field, or refuses a value.
    """
    trt = torch_tensorrt()
    from torch_tensorrt.dynamo._settings import CompilationSettings

    chosen = {
        "min_block_size": 1,
        "device": trt.Device(gpu_id=0),
        # By default, a file in /tmp that anybody may have written.
        "timing_cache_path": "",
        # By default, masks are replaced by causal ones.
        "attn_bias_is_causal": False,
        **options,
    }
    try:
        return CompilationSettings(**chosen)
    except (TypeError, ValueError) as error:
        raise OptionError(f"Torch-TensorRT {trt.__version__} refuses a setting: {error}") from error
