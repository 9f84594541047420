"""Which calls of plain ATen can be converted, and why the others cannot."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from torch.fx import Node

from trt_et.conversion.decompose import decompose, decomposed_operators
from trt_et.conversion.entries import Rewrite
from trt_et.conversion.registry import (
    DECOMPOSITIONS,
    REWRITES,
    converter_for,
    refusal_reason,
)
from trt_et.conversion.settings import converter_registry, make_settings
from trt_et.conversion.torch_tensorrt_import import torch_tensorrt
from trt_et.conversion.torch_tensorrt_patches import without_gpu
from trt_et.options import BuildOptions

__all__ = ["convertible_operators", "make_support_check"]

_log = logging.getLogger(__name__)


def convertible_operators() -> frozenset[Any]:
    """The operators that Torch-TensorRT has a converter for."""
    with without_gpu():
        return frozenset(converter_registry(make_settings()).unique_targets())


def make_support_check(options: BuildOptions) -> Callable[[Node], str | None]:
    """The function that says why a call of a plain ATen graph cannot be converted; None if it can.

    Raises:
        OptionError: A setting is unknown.
    """
    with without_gpu():
        settings = make_settings(**options.compilation_settings())

    def unsupported_reason(node: Node) -> str | None:
        with without_gpu():
            torch_tensorrt()
            converter = converter_for(node.target)
            if converter is not None and converter.takes_every_call:
                return None
            refused = refusal_reason(node)
            if refused is not None or _is_rewritten(node):
                return refused
            registry = converter_registry(settings)
            if node.target not in DECOMPOSITIONS:
                reason = _reason_of_converters(registry, node)
                if reason is None or node.target not in decomposed_operators():
                    return reason
            return _reason_of_decomposition(registry, node)

    return unsupported_reason


def _is_rewritten(node: Node) -> bool:
    """Whether a rewrite replaces a call by what TensorRT has."""
    return any(
        rewrite.accepts(node)
        for rewrite in REWRITES
        if isinstance(rewrite, Rewrite) and rewrite.accepts is not None
    )


def _reason_of_converters(registry: Any, node: Node) -> str | None:  # noqa: ANN401
    refused = refusal_reason(node)
    if refused is not None:
        return refused
    try:
        found = registry.get(node)
    except Exception as error:
        # A validator that fails (on arguments left to their defaults, say) accepts nothing.
        _log.debug("the validator of %s failed on %s: %s", node.target, node, error)
        found = None
    if found is None:
        known = registry.get_unvalidated(node.target) is not None
        return (
            "Torch-TensorRT's converters do not take these arguments"
            if known
            else "Torch-TensorRT has no converter for it"
        )
    _, _, traits = found
    if traits.get("requires_output_allocator"):
        return "its output shape depends on data, which an ExecuTorch delegate cannot return"
    if traits.get("requires_native_multidevice"):
        return "it communicates between devices"
    return None


def _reason_of_decomposition(registry: Any, node: Node) -> str | None:  # noqa: ANN401
    traced = decompose(node)
    if traced is None:
        return "Torch-TensorRT's decomposition of it does not apply here"
    for part in traced.module.graph.nodes:
        if part.op == "call_function":
            reason = _reason_of_converters(registry, part)
            if reason is not None:
                return f"its decomposition contains {part.target}: {reason}"
    return None
