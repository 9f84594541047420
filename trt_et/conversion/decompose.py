"""Replaces calls of operators by their decompositions, ours and Torch-TensorRT's."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from torch._ops import OpOverload
from torch.fx import GraphModule, Node

from trt_et.conversion.settings import converter_registry, make_settings
from trt_et.conversion.stages import decompositions, own_converter
from trt_et.conversion.torch_tensorrt_import import torch_tensorrt
from trt_et.conversion.torch_tensorrt_patches import without_gpu
from trt_et.errors import ConversionError
from trt_et.graph.inlining import insert_traced, trace_call

_DECOMPOSED_FROM = "trt_et_decomposed_from"
_log = logging.getLogger(__name__)


@cache
def decomposed_operators() -> dict[OpOverload, Callable[..., Any]]:
    """Return our decompositions, and Torch-TensorRT's of operators without a converter."""
    torch_tensorrt()
    from torch_tensorrt.dynamo.lowering import get_decompositions

    with without_gpu():
        table = get_decompositions()
        convertible = converter_registry(make_settings()).unique_targets()
    theirs = {
        op: function
        for op, function in table.items()
        if isinstance(op, OpOverload) and op not in convertible and own_converter(op) is None
    }
    return theirs | decompositions()


def decompose(node: Node, table: Mapping[Any, Callable[..., Any]]) -> GraphModule | None:
    """Return the decomposition of one call; None if it does not apply to the arguments."""
    try:
        return trace_call(node, node.target, table)
    except Exception as error:
        # Decompositions raise many types if they do not apply, as to a tensor without dimensions.
        _log.debug("decomposing %s failed: %s", node, error)
        return None


def inline_decompositions(module: GraphModule, table: Mapping[Any, Callable[..., Any]]) -> None:
    """Replace the operators of a graph of plain ATen by their decompositions.

    Raises:
        ConversionError: A decomposition does not apply.
    """
    for node in list(module.graph.nodes):
        if node.op == "call_function" and node.target in table:
            traced = decompose(node, table)
            if traced is None:
                raise ConversionError(
                    f"the decomposition of {node.target} does not apply to these arguments",
                    node.name,
                )
            for part in insert_traced(module, node, traced, "_constant_"):
                part.meta[_DECOMPOSED_FROM] = node.name
    module.recompile()


def decomposed_from(node: Node) -> str:
    """Return the name of the node that a node was decomposed from, or else its own."""
    return str(node.meta.get(_DECOMPOSED_FROM, node.name))
