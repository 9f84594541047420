"""Whose word counts on what can be claimed.

Torch-TensorRT's converter registry, for every builder: the reference engine stands in for a real
one, so it claims the same nodes. Only where Torch-TensorRT is not installed does the reference
builder claim what ExecuTorch's CPU kernels run, and says so.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from functools import cache

import torch

from trt_et.builders import BuildOptions, EngineBuilder
from trt_et.builders.reference.support import unsupported_by_cpu_kernels
from trt_et.cache.engine_cache import EngineCache
from trt_et.cache.fingerprint import fingerprint_of, has_foreign_converters
from trt_et.conversion.installed import installed_variant
from trt_et.engine_info import REFERENCE_BUILDER
from trt_et.lowering.canonical_text import NoText, SymbolNames, value_text
from trt_et.partition.operator_support import Refusal
from trt_et.partition.support_cache import ClaimsCache, Remembering

__all__ = ["claims_for", "refusal_for"]

_log = logging.getLogger(__name__)


@contextlib.contextmanager
def claims_for(
    builder: EngineBuilder, options: BuildOptions, cache: EngineCache | None
) -> Iterator[Refusal]:
    """:func:`refusal_for`, asking only what ``cache`` does not remember, and adding to it.

    Raises:
        OptionError: As :func:`refusal_for`.
    """
    fingerprint = _fingerprint(options) if cache is not None else ""
    if cache is None or not fingerprint:
        yield refusal_for(builder, options)
        return
    memory = ClaimsCache(cache.claims_folder, fingerprint)
    asking = Remembering(memory, lambda: refusal_for(builder, options))
    yield asking
    if asking.asked and _uses_converters(builder):
        memory.save()


def refusal_for(builder: EngineBuilder, options: BuildOptions) -> Refusal:
    """The function that says why a node of a plain ATen graph is not claimed for ``builder``.

    Raises:
        OptionError: ``options`` has a setting that Torch-TensorRT does not know.
    """
    if _uses_converters(builder):
        from trt_et.conversion import support

        return support.make_support_check(options)
    _say_once()
    return unsupported_by_cpu_kernels


def _uses_converters(builder: EngineBuilder) -> bool:
    """Whether Torch-TensorRT has the word; imports it."""
    if installed_variant() is None:
        return False
    from trt_et.conversion import torch_tensorrt_import

    return builder.name != REFERENCE_BUILDER or torch_tensorrt_import.is_importable()


def _fingerprint(options: BuildOptions) -> str:
    """What Torch-TensorRT's answers depend on; empty where they must not be remembered."""
    if installed_variant() is None or has_foreign_converters():
        return ""
    try:
        settings = value_text(options.compilation_settings(), SymbolNames())
    except NoText:
        return ""
    # Some validators ask what the GPU can do.
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    return fingerprint_of(settings, gpu, tensorrt=True)


@cache
def _say_once() -> None:
    _log.warning(
        "Torch-TensorRT cannot be imported here, so partitions hold what ExecuTorch's CPU kernels "
        "can run, not what TensorRT can run. For TensorRT's own choice: "
        'pip install "torch-tensorrt-rtx>=2.13,<2.14"'
    )
