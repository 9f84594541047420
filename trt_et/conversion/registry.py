"""Lists what trt-et does about operators that Torch-TensorRT does not convert correctly.

The support check (``support.py``), the preparation of the graph (``prepare.py``), the
decompositions (``decompose.py``) and the interpreter (``interpreter.py``) all read this list: an
operator that one of them knows is known to all. How to add an operator:
``docs/internals/add-an-operator.md``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from torch.fx import Node

from trt_et.conversion.operator import Operator, Step
from trt_et.conversion.operators import (
    activations,
    arithmetic,
    attention,
    caches,
    division,
    grouped_weights,
    indexing,
    member_sums,
    min_rank,
    moves,
    normalization,
    pooling,
    products,
    quantization,
    reductions,
    resize,
    scatter,
    types,
)

OPERATORS: Final[tuple[Operator | Step, ...]] = (
    # The forms that the decompositions would take apart.
    scatter.INDEX_PUT,  # Caches are updated by rows in their full shape.
    member_sums.EMBEDDING_BAG,
    member_sums.SCATTER_ADD,  # Makes index_add.
    caches.KV_CACHE,
    Step.UPDATE_IN_PLACE,  # Before slice_scatter is decomposed.
    member_sums.INDEX_ADD,
    member_sums.SCATTER_REDUCE,
    scatter.SLICE_SCATTER,
    moves.DIAGONAL,
    moves.REPEAT,
    activations.HARDSWISH,
    activations.LOG_SIGMOID,
    activations.MISH,
    activations.SILU,
    arithmetic.ATAN2,
    products.BADDBMM,
    division.DIVISION,
    division.FMOD,
    division.REMAINDER,
    division.TRUNC,
    arithmetic.LOG1P,
    activations.LOG_SOFTMAX,
    reductions.MAX,
    reductions.MIN,
    arithmetic.POWER,
    reductions.VAR,
    Step.DECOMPOSE,
    moves.ARANGE,  # The products that it makes may mix dtypes.
    moves.FULL,
    attention.SHARED_HEADS,  # Before all others that look at keys and values.
    attention.WRITTEN_OUT_ATTENTION,  # Has a form of its own for rows that are masked.
    attention.ATTENTION,  # Reduces boolean masks, which TensorRT does as int32 only.
    types.TYPE_PROMOTION,
    normalization.NORMALIZATION,
    pooling.ADAPTIVE_AVG_POOL,  # Makes means.
    resize.UPSAMPLE,  # Makes gathers.
    reductions.EXTREMES,
    pooling.POOLING,  # The poolings that it makes may have three dimensions.
    attention.ATTENTION_INPUTS,  # After MIN_RANK, a query is a tensor for each attention.
    min_rank.MIN_RANK,
    products.TRANSPOSED_CONVOLUTION,
    scatter.SCATTER,
    indexing.INDEX,  # An index below 0 in one of several would carry to the next.
    scatter.FLAT_INDEX_PUT,
    moves.RESHAPE,  # Also the reshapes that the others made.
    grouped_weights.GROUPED_WEIGHTS,  # Knows 4-bit weights by the cast, which the next replaces.
    grouped_weights.DEQUANTIZE_GROUPS,
    quantization.INT8_WEIGHTS,
    quantization.FAKE_QUANTIZED,  # Its dequantize layers may reach a convolution.
    quantization.QUANTIZE,
    products.QUANTIZED_CONVOLUTION,
    attention.ATTENTION_RESULTS,
    quantization.ACTIVATION_SCALE,  # After those that look for quantize operators.
    products.RESIDUAL_SUM,  # Knows linear layers by the casts, whatever else is rewritten.
    # Without a rewrite.
    attention.IS_NAN,
    reductions.CUMSUM,
    indexing.EMBEDDING,
    indexing.GATHER,
    normalization.INSTANCE_NORM,
    normalization.LAYER_NORM,
    normalization.RMS_NORM,
    indexing.SELECT,
    indexing.SLICE,
    activations.SOFTPLUS,
    types.TO_COPY,
    types.WHERE,
)
"""All entries, in the order in which they rewrite a partition's graph, with its reasons."""


def entries() -> list[Operator | Step]:
    """Return the entries that the installed releases need."""
    return [entry for entry in OPERATORS if isinstance(entry, Step) or not entry.is_fixed()]


def _entries_of(target: object) -> list[Operator]:
    return [e for e in entries() if isinstance(e, Operator) and target in e.targets]


def refusal_reason(node: Node) -> str | None:
    """Return why a call stays out of an engine although it would be converted; None if not."""
    for entry in _entries_of(node.target):
        reason = entry.unsupported(node) if entry.unsupported else None
        if reason is not None:
            return reason
    return None


def decompositions(
    chosen: Iterable[Operator | Step] | None = None,
) -> dict[Any, Callable[..., Any]]:
    """Return the decompositions of some entries, by operator; None: ``entries()``."""
    return {
        target: entry.decompose
        for entry in (entries() if chosen is None else chosen)
        if isinstance(entry, Operator) and entry.decompose
        for target in entry.targets
    }


def own_converter(target: object) -> Callable[..., Any] | None:
    """Return the function that adds an operator's layers; None if it is Torch-TensorRT's."""
    return next((e.add_layer for e in _entries_of(target) if e.add_layer), None)
