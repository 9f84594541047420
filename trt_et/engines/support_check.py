"""Chooses the support check of a builder.

Every builder uses Torch-TensorRT's converters: reference engines replace real ones, so they hold
the same nodes. If Torch-TensorRT is not installed, the reference builder supports the operators of
ExecuTorch's CPU kernels, and a warning reports it.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from functools import cache, partial
from typing import Final

import torch

from trt_et.blob.model import REFERENCE_BUILDER
from trt_et.conversion.installed import installed_variant
from trt_et.conversion.torch_tensorrt_patches import without_gpu
from trt_et.engine_program.canonical_text import NotSerializable, SymbolNames, value_text
from trt_et.engines.base import EngineBuilder
from trt_et.engines.cache import EngineCache
from trt_et.engines.fingerprint import fingerprint_of, has_foreign_converters
from trt_et.engines.key import builder_fingerprint
from trt_et.engines.support_cache import Answer, SupportCache, remembering
from trt_et.graph.cpu_kernels import unsupported_by_cpu_kernels
from trt_et.graph.fragment import Fragment, SupportCheck, Unsupported
from trt_et.options import BuildOptions
from trt_et.requirements import install_command

_log = logging.getLogger(__name__)

# The answers of this process, by fingerprint.
_KNOWN: Final[dict[str, dict[str, Answer]]] = {}


@contextlib.contextmanager
def cached_support_check(
    builder: EngineBuilder,
    options: BuildOptions,
    cache: EngineCache | None,
) -> Iterator[SupportCheck]:
    """Make a support check that remembers its answers, in this process and in ``cache``.

    Args:
        builder: The builder.
        options: The engines' options.
        cache: Keeps the answers; None: this process alone does.

    Raises:
        OptionError: As ``make_support_check``.
    """
    make = partial(make_support_check, builder, options)
    fingerprint = _fingerprint(builder, options)
    with without_gpu():
        if not fingerprint:
            yield make()
            return
        known = _KNOWN.setdefault(fingerprint, {})
        if cache is None:
            yield remembering(known, {}, make)
            return
        stored = SupportCache(cache.support_folder, fingerprint)
        known.update(stored)
        yield remembering(known, stored, make)
    stored.save()


def make_support_check(builder: EngineBuilder, options: BuildOptions) -> SupportCheck:
    """Return the function that says why ``builder`` does not support calls of plain ATen.

    Raises:
        OptionError: ``options`` has a setting that Torch-TensorRT does not know.
    """
    own = getattr(builder, "make_support_check", None)
    if own is not None:
        check_of_builder: SupportCheck = own(options)
        return check_of_builder
    if _uses_converters(builder):
        from trt_et.conversion import support

        return support.make_support_check(options)
    _say_once()

    def check(fragment: Fragment) -> Unsupported | None:
        for call in fragment.calls:
            reason = unsupported_by_cpu_kernels(call)
            if reason is not None:
                return Unsupported(reason, call.name)
        return None

    return check


def _uses_converters(builder: EngineBuilder) -> bool:
    """Return whether the builder uses Torch-TensorRT's converters; import it."""
    if installed_variant() is None:
        return False
    from trt_et.conversion import torch_tensorrt_import

    return builder.name != REFERENCE_BUILDER or torch_tensorrt_import.is_importable()


def _fingerprint(builder: EngineBuilder, options: BuildOptions) -> str:
    """Return the facts that decide the answers; empty if they must not be remembered."""
    if hasattr(builder, "make_support_check"):
        return builder_fingerprint(builder)
    if installed_variant() is None or has_foreign_converters():
        return ""
    try:
        settings = value_text(options.compilation_settings(), SymbolNames())
    except NotSerializable:
        return ""
    # Some validators depend on the GPU.
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    return fingerprint_of(settings, gpu, tensorrt=True)


@cache
def _say_once() -> None:
    _log.warning(
        "Torch-TensorRT cannot be imported, so nothing checks which operators TensorRT supports: "
        "partitions get every operator with a CPU kernel. To check, install it: "
        "%s",
        install_command("torch-tensorrt-rtx"),
    )
