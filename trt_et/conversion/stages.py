"""Lists what trt-et does about operators that Torch-TensorRT does not convert correctly.

The support check (``trial.py``), the rewrites of the graph (``rewriting.py``), the decompositions
(``decompose.py``) and the interpreter (``interpreter.py``) all read this list: an operator that one
of them knows is known to all. How to add an operator:
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
    bits,
    caches,
    division,
    grouped_weights,
    indexing,
    joined_products,
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

STAGES: Final[dict[str, tuple[Operator | Step, ...]]] = {
    # All others know floats.
    "dtypes at the border": (Step.HOLD_UINT8,),
    # Caches are updated by rows in their full shape.
    "calls that the decompositions would take apart": (
        scatter.INDEX_PUT,
        member_sums.EMBEDDING_BAG,
        member_sums.SCATTER_ADD,
    ),
    # Before slice_scatter is decomposed.
    "caches": (Step.UPDATE_IN_PLACE,),
    # Of this package, at any place in the lists, and of Torch-TensorRT or torch.
    "decompositions": (Step.DECOMPOSE,),
    # Decompositions may mix dtypes. Keys and values have the heads that all others expect.
    "ranges, fills and shared heads": (moves.ARANGE, moves.FULL, attention.SHARED_HEADS),
    # Of a linear layer with a bias, others read more.
    "biases": (products.ZERO_BIAS,),
    # Before linear layers get other forms.
    "products of one input": (joined_products.JOINED_HEADS,),
    # It has a special form for rows that are masked.
    "written out attentions": (attention.WRITTEN_OUT_ATTENTION,),
    # They reduce boolean masks, which TensorRT does as int32 only.
    "masked rows": (attention.ATTENTION,),
    "dtypes": (types.TYPE_PROMOTION,),
    # They make means, gathers and poolings.
    "several operators for one, and one for several": (
        normalization.NORMALIZATION,
        pooling.ADAPTIVE_AVG_POOL,
        resize.UPSAMPLE,
        reductions.EXTREMES,
    ),
    # The poolings that are made may have three dimensions; so far an attention's query may be that
    # of others.
    "poolings and inputs of attentions": (pooling.POOLING, attention.ATTENTION_INPUTS),
    "few dimensions": (min_rank.MIN_RANK,),
    # An index below 0 in one of several would carry to the next.
    "indices from 0, and their sources": (
        products.TRANSPOSED_CONVOLUTION,
        scatter.SCATTER,
        indexing.INDEX,
    ),
    "one index for several": (scatter.FLAT_INDEX_PUT,),
    # Also reshapes that the others made.
    "reshapes, and paddings of convolutions": (moves.RESHAPE, moves.PAD_BY_SIZES),
    # Knows 4-bit weights by the cast, which the next stage replaces.
    "4-bit weights": (grouped_weights.GROUPED_WEIGHTS,),
    # The dequantize layers that they make may reach a convolution.
    "quantize layers": (quantization.INT8_WEIGHTS, quantization.FAKE_QUANTIZED),
    "faults of TensorRT-RTX's builder": (
        products.QUANTIZED_CONVOLUTION,
        attention.ATTENTION_RESULTS,
        moves.PERMUTE,
    ),
    # After the rewrites that look for quantize operators.
    "scales of activations": (quantization.ACTIVATION_SCALE,),
    # Finds linear layers by the casts, independent of other rewrites.
    "sums in the kernels of products": (products.RESIDUAL_SUM,),
    # The place of these in the list changes nothing.
    "without a rewrite": (
        member_sums.INDEX_ADD,
        member_sums.SCATTER_REDUCE,
        scatter.SLICE_SCATTER,
        moves.DIAGONAL,
        moves.PAD,
        moves.REPEAT,
        moves.UNFOLD,
        activations.HARDSWISH,
        activations.LOG_SIGMOID,
        activations.LOG_SOFTMAX,
        activations.MISH,
        activations.SILU,
        activations.SOFTPLUS,
        arithmetic.ATAN2,
        arithmetic.LOG1P,
        arithmetic.POWER,
        bits.BITWISE_AND,
        bits.BITWISE_NOT,
        bits.BITWISE_OR,
        bits.BITWISE_XOR,
        division.DIVISION,
        division.FMOD,
        division.REMAINDER,
        division.TRUNC,
        products.BADDBMM,
        reductions.CDIST,
        reductions.CUMSUM,
        reductions.PICK,
        reductions.TOPK,
        reductions.MAX,
        reductions.MIN,
        reductions.VAR,
        attention.IS_NAN,
        caches.KV_CACHE,
        grouped_weights.DEQUANTIZE_GROUPS,
        indexing.EMBEDDING,
        indexing.GATHER,
        indexing.SELECT,
        indexing.SLICE,
        normalization.INSTANCE_NORM,
        normalization.LAYER_NORM,
        normalization.RMS_NORM,
        quantization.QUANTIZE,
        types.TO_COPY,
        types.WHERE,
    ),
}
"""All entries, by the stages in which they rewrite a partition's graph, with the reasons.

Inside a stage the order is free.
"""

OPERATORS: Final[tuple[Operator | Step, ...]] = tuple(
    entry for stage in STAGES.values() for entry in stage
)


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
