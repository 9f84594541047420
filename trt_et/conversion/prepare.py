"""Brings a partition's graph into the form that the converters take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch.fx import GraphModule

from trt_et.blob.model import Alias
from trt_et.conversion.decompose import inline_decompositions
from trt_et.conversion.entries import Step
from trt_et.conversion.registry import REWRITES
from trt_et.conversion.rewrites.kv_cache_update import update_in_place
from trt_et.conversion.torch_tensorrt_patches import weights_stay_quantized
from trt_et.lowering.edge_to_aten import describe_value
from trt_et.lowering.in_place_buffers import InPlaceBuffer

__all__ = ["prepare_module"]


def _no_code() -> None:
    """Stand in for ``GraphModule.recompile``."""


def prepare_module(
    module: GraphModule,
    library: str,
    settings: Any,  # noqa: ANN401
    aliased_outputs: Sequence[InPlaceBuffer] = (),
) -> tuple[GraphModule, tuple[Alias, ...]]:
    """Apply all rewrites to a module, ours and Torch-TensorRT's.

    Args:
        module: Plain ATen, constants as attributes; changed.
        library: The engine library, by its builder's name.
        settings: Torch-TensorRT's ``CompilationSettings``.
        aliased_outputs: The outputs that may be written into an input's memory.

    Returns:
        The module, and the outputs that it writes into an input's memory.
    """
    from torch_tensorrt.dynamo.lowering import post_lowering

    from trt_et.conversion.converters.kv_cache_update import has_cache_update_layer

    # Converters interpret the graph; each rewrite would print its Python code for nothing.
    module.recompile = _no_code  # type: ignore[assignment,method-assign]
    aliases: tuple[Alias, ...] = ()
    for rewrite in REWRITES:
        if rewrite is Step.DECOMPOSE:
            inline_decompositions(module)
        elif rewrite is Step.UPDATE_IN_PLACE:
            if has_cache_update_layer():
                aliases = update_in_place(module, aliased_outputs)
        elif not isinstance(rewrite, Step) and rewrite.is_needed(library):
            rewrite.apply(module)
    for node in module.graph.nodes:
        describe_value(node)
    with weights_stay_quantized():
        prepared: GraphModule = post_lowering(module, settings)
    return prepared, aliases
