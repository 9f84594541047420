"""Chooses who decides which operators are supported.

For every builder that is Torch-TensorRT's converter registry: reference engines replace real ones,
so they hold the same nodes. Only where Torch-TensorRT is not installed does the reference builder
support what ExecuTorch's CPU kernels run, and a warning says so.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from functools import cache

import torch

from trt_et.blob.model import REFERENCE_BUILDER
from trt_et.builders import BuildOptions, EngineBuilder
from trt_et.builders.reference.support import unsupported_by_cpu_kernels
from trt_et.cache.engine_cache import EngineCache
from trt_et.cache.fingerprint import fingerprint_of, has_foreign_converters
from trt_et.conversion.installed import installed_variant
from trt_et.conversion.torch_tensorrt_patches import without_gpu
from trt_et.lowering.canonical_text import NotSerializable, SymbolNames, value_text
from trt_et.partition.operator_support import SupportCheck
from trt_et.partition.support_cache import CachedSupportCheck, SupportCache
from trt_et.requirements import install_command

__all__ = ["cached_support_check", "make_support_check"]

_log = logging.getLogger(__name__)


@contextlib.contextmanager
def cached_support_check(
    builder: EngineBuilder, options: BuildOptions, cache: EngineCache | None
) -> Iterator[SupportCheck]:
    """:func:`make_support_check`, asking only what ``cache`` does not know, and adding to it.

    Raises:
        OptionError: As :func:`make_support_check`.
    """
    fingerprint = _fingerprint(options) if cache is not None else ""
    with without_gpu():
        if cache is None or not fingerprint:
            yield make_support_check(builder, options)
            return
        memory = SupportCache(cache.support_folder, fingerprint)
        asking = CachedSupportCheck(memory, lambda: make_support_check(builder, options))
        yield asking
    if asking.asked and _uses_converters(builder):
        memory.save()


def make_support_check(builder: EngineBuilder, options: BuildOptions) -> SupportCheck:
    """The function that says why ``builder`` does not support a node of a plain ATen graph.

    Raises:
        OptionError: ``options`` has a setting that Torch-TensorRT does not know.
    """
    if _uses_converters(builder):
        from trt_et.conversion import support

        return support.make_support_check(options)
    _say_once()
    return unsupported_by_cpu_kernels


def _uses_converters(builder: EngineBuilder) -> bool:
    """Whether Torch-TensorRT decides; imports it."""
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
    except NotSerializable:
        return ""
    # Some validators ask what the GPU can do.
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    return fingerprint_of(settings, gpu, tensorrt=True)


@cache
def _say_once() -> None:
    _log.warning(
        "Torch-TensorRT cannot be imported here, so partitions hold what ExecuTorch's CPU kernels "
        "can run, not what TensorRT can run. For TensorRT's own choice: "
        "%s",
        install_command("torch-tensorrt-rtx"),
    )
