"""Brings a partition's graph into the form that the converters take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx import GraphModule
from torch.fx.passes.shape_prop import TensorMetadata

from trt_et.blob.model import Alias
from trt_et.conversion.decompose import decomposed_operators, inline_decompositions
from trt_et.conversion.operator import Operator, Step
from trt_et.conversion.operators.caches import has_cache_update_layer, update_in_place
from trt_et.conversion.operators.uint8 import hold_uint8_as_float32
from trt_et.conversion.stages import entries
from trt_et.conversion.torch_tensorrt_patches import weights_stay_quantized
from trt_et.engine_program.in_place_buffers import InPlaceBuffer
from trt_et.graph.insertion import compute_value


def _no_code() -> None:
    """Stand in for ``GraphModule.recompile``."""


def prepare_module(
    module: GraphModule,
    library: str,
    settings: Any,  # noqa: ANN401
    aliased_outputs: Sequence[InPlaceBuffer] = (),
) -> tuple[GraphModule, tuple[Alias, ...]]:
    """Apply all rewrites to a module, ours and Torch-TensorRT's.

    The arguments are as in ``network.convert_module``.

    Returns:
        The module, and the outputs that it writes into an input's memory.
    """
    from torch_tensorrt.dynamo.lowering.passes import ATEN_POST_LOWERING_PASSES

    # Converters interpret the graph; each rewrite would print its Python code for nothing.
    module.recompile = _no_code  # type: ignore[assignment,method-assign]
    aliases: tuple[Alias, ...] = ()
    for entry in entries():
        if entry is Step.HOLD_UINT8:
            hold_uint8_as_float32(module)
        elif entry is Step.DECOMPOSE:
            inline_decompositions(module, decomposed_operators())
        elif entry is Step.UPDATE_IN_PLACE:
            if has_cache_update_layer():
                aliases = update_in_place(module, aliased_outputs)
        elif isinstance(entry, Operator) and entry.library in (None, library):
            rewrite(module, entry)
    for node in module.graph.nodes:
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor):
            # Without this, some of Torch-TensorRT's validators refuse.
            node.meta["tensor_meta"] = TensorMetadata(
                value.shape, value.dtype, False, value.stride(), None, False, {}
            )
    # Its post_lowering() computes the values of nearly all nodes once more.
    with weights_stay_quantized():
        prepared: GraphModule = ATEN_POST_LOWERING_PASSES(module, settings)
    _compute_missing_values(prepared)
    return prepared, aliases


def _compute_missing_values(module: GraphModule) -> None:
    """Compute the values of the calls that Torch-TensorRT's passes inserted."""
    nodes = module.graph.nodes
    described = [node for node in nodes if isinstance(node.meta.get("val"), FakeTensor)]
    for node in nodes:
        if node.op == "call_function" and "val" not in node.meta:
            compute_value(node, described[0])


def rewrite(module: GraphModule, entry: Operator) -> None:
    """Rewrite the calls of an entry's targets, if it has a rewrite; change the graph in place."""
    if entry.rewrite is None:
        return
    graph = module.graph
    number = len(graph.nodes)
    for node in list(graph.nodes):
        if node.target in entry.targets and (replacement := entry.rewrite(node)) is not None:
            node.replace_all_uses_with(replacement)
            number = 0
    if len(graph.nodes) != number:
        graph.eliminate_dead_code()
    module.recompile()
