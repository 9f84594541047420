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
    activation_scales,
    activations,
    adaptive_avg_pool,
    arange,
    atan2,
    attention,
    baddbmm,
    convolution,
    cumsum,
    dequantize_groups,
    diagonal,
    division,
    embedding,
    embedding_bag,
    gather,
    index,
    index_put,
    kv_cache,
    log1p,
    log_softmax,
    max_min,
    min_rank,
    normalization,
    pooling,
    power,
    quantize,
    repeat,
    reshape,
    residual_sums,
    rms_norm,
    scatter,
    scatter_reduce,
    slice,
    slice_scatter,
    softplus,
    to_copy,
    type_promotion,
    upsample,
    var,
    where,
)

OPERATORS: Final[tuple[Operator | Step, ...]] = (
    # The forms that the decompositions would take apart.
    index_put.INDEX_PUT,  # Caches are updated by rows in their full shape.
    embedding_bag.EMBEDDING_BAG,
    scatter_reduce.SCATTER_ADD,  # Makes index_add.
    kv_cache.KV_CACHE,
    Step.UPDATE_IN_PLACE,  # Before slice_scatter is decomposed.
    scatter_reduce.INDEX_ADD,
    scatter_reduce.SCATTER_REDUCE,
    slice_scatter.SLICE_SCATTER,
    diagonal.DIAGONAL,
    repeat.REPEAT,
    activations.HARDSWISH,
    activations.LOG_SIGMOID,
    activations.MISH,
    activations.SILU,
    atan2.ATAN2,
    baddbmm.BADDBMM,
    division.DIVISION,
    division.FMOD,
    division.REMAINDER,
    division.TRUNC,
    log1p.LOG1P,
    log_softmax.LOG_SOFTMAX,
    max_min.MAX,
    max_min.MIN,
    power.POWER,
    var.VAR,
    Step.DECOMPOSE,
    arange.ARANGE,  # The products that it makes may mix dtypes.
    arange.FULL,
    attention.SHARED_HEADS,  # Before all others that look at keys and values.
    attention.WRITTEN_OUT_ATTENTION,  # Has a form of its own for rows that are masked.
    attention.ATTENTION,  # Reduces boolean masks, which TensorRT does as int32 only.
    type_promotion.TYPE_PROMOTION,
    normalization.NORMALIZATION,
    adaptive_avg_pool.ADAPTIVE_AVG_POOL,  # Makes means.
    upsample.UPSAMPLE,  # Makes gathers.
    max_min.EXTREMES,
    pooling.POOLING,  # The poolings that it makes may have three dimensions.
    attention.ATTENTION_INPUTS,  # After MIN_RANK, a query is a tensor for each attention.
    min_rank.MIN_RANK,
    convolution.TRANSPOSED_CONVOLUTION,
    scatter.SCATTER,
    index.INDEX,  # An index below 0 in one of several would carry to the next.
    index_put.FLAT_INDEX_PUT,
    reshape.RESHAPE,  # Also the reshapes that the others made.
    dequantize_groups.GROUPED_WEIGHTS,  # Knows 4-bit weights by the cast, which the next replaces.
    dequantize_groups.DEQUANTIZE_GROUPS,
    quantize.INT8_WEIGHTS,
    quantize.FAKE_QUANTIZED,  # Its dequantize layers may reach a convolution.
    quantize.QUANTIZE,
    convolution.QUANTIZED_CONVOLUTION,
    attention.ATTENTION_RESULTS,
    activation_scales.ACTIVATION_SCALE,  # After those that look for quantize operators.
    residual_sums.RESIDUAL_SUM,  # Knows linear layers by the casts, whatever else is rewritten.
    # Without a rewrite.
    attention.IS_NAN,
    cumsum.CUMSUM,
    embedding.EMBEDDING,
    gather.GATHER,
    normalization.INSTANCE_NORM,
    normalization.LAYER_NORM,
    rms_norm.RMS_NORM,
    slice.SELECT,
    slice.SLICE,
    softplus.SOFTPLUS,
    to_copy.TO_COPY,
    where.WHERE,
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
