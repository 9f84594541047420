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
from torch._ops import OpOverload
from torch.fx import Node

from trt_et.builders import BuildOptions, EngineBuilder
from trt_et.builders.registry import installed_variant
from trt_et.cache.engine_cache import EngineCache
from trt_et.cache.fingerprint import fingerprint_of, has_foreign_converters
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
    return _kernel_refusal


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
        settings = value_text(options.settings, SymbolNames())
    except NoText:
        return ""
    # Some validators ask what the GPU can do.
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    return fingerprint_of(settings, gpu, tensorrt=True)


@cache
def _say_once() -> None:
    _log.warning(
        "Torch-TensorRT is not usable here, so operators are claimed by ExecuTorch's CPU kernels, "
        'not by what TensorRT can run. For TensorRT\'s own choice: pip install "trt-et[rtx]"'
    )


def _kernel_refusal(node: Node) -> str | None:
    target = node.target
    if not isinstance(target, OpOverload):
        return None
    if target.namespace != "aten":
        return "ExecuTorch has no CPU kernel for it"
    return (
        None
        if target in _decomposable() or _has_kernel(target)
        else ("ExecuTorch has no CPU kernel for it")
    )


@cache
def _decomposable() -> frozenset[OpOverload]:
    from torch._decomp import core_aten_decompositions

    return frozenset(op for op in core_aten_decompositions() if isinstance(op, OpOverload))


@cache
def _kernels() -> frozenset[str]:
    from executorch.runtime import Runtime

    return frozenset(Runtime.get().operator_registry.operator_names)


def _has_kernel(target: OpOverload) -> bool:
    from executorch.exir.operator.convert import to_out_variant

    for candidate in (target, _copying(target)):
        if candidate is None:
            continue
        try:
            out, _ = to_out_variant(candidate)
        except (RuntimeError, KeyError):
            continue
        name = out._schema.name + (f".{out._overloadname}" if out._overloadname else "")
        if name in _kernels() or f"{out._schema.name}.out" in _kernels():
            return True
    return False


def _copying(target: OpOverload) -> OpOverload | None:
    """``aten.permute.default`` -> ``aten.permute_copy.default``, as the Edge dialect has it."""
    name = target._schema.name.split("::")[1]
    packet = getattr(torch.ops.aten, f"{'view' if name == 'reshape' else name}_copy", None)
    overload = getattr(packet, target._overloadname, None)
    return overload if isinstance(overload, OpOverload) else None
