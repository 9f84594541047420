"""Lists every operator that Torch-TensorRT does not convert correctly, with our remedy.

There are four lists, in the order in which they apply to a partition:

1. :data:`REFUSALS`: calls that stay out of an engine, and why.
2. :data:`REWRITES`: changes of the graph, in order, with the reason of every ordering constraint.
3. :data:`DECOMPOSITIONS`: operators that others replace, at the step ``DECOMPOSE`` of the rewrites.
4. :data:`CONVERTERS`: operators that a converter of trt-et turns into TensorRT's layers.

The support check (``support.py``), the preparation of the graph (``prepare.py``) and the
interpreter (``interpreter.py``) all read these lists: an operator that one of them knows is known
to all. How to add an operator: ``docs/internals/add-an-operator.md``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch
import torch.ao.quantization.fx._decomposed  # Registers the operators of PT2E.
from torch.fx import Node

from trt_et.conversion import refusals
from trt_et.conversion.decompositions import (
    diagonal,
    log1p,
    max_with_indices,
    min_with_indices,
    slice_scatter,
    variance,
)
from trt_et.conversion.entries import Converter, Refusal, Rewrite, Step
from trt_et.conversion.float_remainder import float_remainder, fmod
from trt_et.conversion.rewrites.adaptive_pool_and_resize import (
    resample_by_weighted_sums,
)
from trt_et.conversion.rewrites.attention_mask import zero_fully_masked_rows
from trt_et.conversion.rewrites.dynamic_numbers import write_out_dynamic_numbers
from trt_et.conversion.rewrites.embedding_bag import (
    EMBEDDING_BAGS,
    embedding_bag,
    reduce_equal_size_bags,
)
from trt_et.conversion.rewrites.index_put import (
    broadcast_index_put_values,
    flatten_index_put,
    masked_put_to_where,
)
from trt_et.conversion.rewrites.instance_norm import expand_normalization
from trt_et.conversion.rewrites.int4_groups import dequantize_groups, keep_weights_int4
from trt_et.conversion.rewrites.integer_division import divide_exactly
from trt_et.conversion.rewrites.kv_cache_update import write_rows
from trt_et.conversion.rewrites.log_softmax import expand_log_softmax
from trt_et.conversion.rewrites.negative_indices import normalize_negative_indices
from trt_et.conversion.rewrites.pooling import expand_ceil_mode_pooling
from trt_et.conversion.rewrites.quantize import keep_weights_int8, split_fake_quantize
from trt_et.conversion.rewrites.rank_promotion import unsqueeze_to_min_rank
from trt_et.conversion.rewrites.reshape import make_reshape_static
from trt_et.conversion.rewrites.scatter import fit_scatter_source
from trt_et.conversion.rewrites.scatter_reduce import (
    SCATTER_REDUCTIONS,
    scatter_add_to_index_add,
    unsupported_scatter_reason,
)
from trt_et.conversion.rewrites.tensorrt_rtx_attention import (
    separate_attention_inputs,
    separate_attention_results,
)
from trt_et.conversion.rewrites.tensorrt_rtx_workarounds import (
    add_bias_after_split,
    dequantize_before_convolution,
)
from trt_et.conversion.rewrites.type_promotion import apply_type_promotion
from trt_et.ops.fake_quantize import FAKE_QUANTIZE

__all__ = [
    "CONVERTERS",
    "DECOMPOSITIONS",
    "REFUSALS",
    "REWRITES",
    "converter_for",
    "refusal_reason",
]

aten = torch.ops.aten
_quantized = torch.ops.quantized_decomposed

_RESIZES: Final = (
    *refusals.NEAREST_RESIZES,
    *(aten.upsample_linear1d.vec, aten.upsample_bilinear2d.vec),
    *(aten.upsample_trilinear3d.vec, aten.upsample_bicubic2d.vec),
)


REFUSALS: Final = (
    Refusal((*SCATTER_REDUCTIONS, aten.index_put.default), unsupported_scatter_reason),
    Refusal((aten.scatter.src, aten.scatter.value), refusals.scatter_into_number),
    Refusal((aten.softplus.default,), refusals.softplus_threshold),
    Refusal((aten.index_put.default,), refusals.dynamic_index_put),
    Refusal(_RESIZES, refusals.dynamic_resize_factor),
)
"""Calls that stay out of an engine because their conversion would be wrong."""


def refusal_reason(node: Node) -> str | None:
    """Return why :data:`REFUSALS` keep a call out of an engine; None if they do not."""
    for refusal in REFUSALS:
        if node.target not in refusal.operators or refusal.is_fixed():
            continue
        reason = refusal.reason(node)
        if reason is not None:
            return reason
    return None


REWRITES: Final[tuple[Rewrite | Step, ...]] = (
    Rewrite(
        masked_put_to_where,
        before={apply_type_promotion: "the value and the tensor may differ in dtype"},
    ),
    Rewrite(
        broadcast_index_put_values,
        before={Step.UPDATE_IN_PLACE: "it recognises rows in their full shape only"},
    ),
    Rewrite(
        expand_log_softmax,
        before={Step.DECOMPOSE: "Torch-TensorRT's is the logarithm of the softmax"},
    ),
    Rewrite(
        reduce_equal_size_bags,
        before={Step.DECOMPOSE: "the decomposition multiplies by a matrix of all bags"},
    ),
    Rewrite(
        scatter_add_to_index_add,
        before={Step.DECOMPOSE: "index_add is decomposed, and so is a scatter_add of other rows"},
    ),
    Step.UPDATE_IN_PLACE,  # Before DECOMPOSE, which takes slice_scatter apart.
    Step.DECOMPOSE,
    Rewrite(
        write_out_dynamic_numbers,
        before={apply_type_promotion: "the products that it makes may mix dtypes"},
    ),
    Rewrite(
        zero_fully_masked_rows,
        before={
            apply_type_promotion: "it reduces boolean masks, which TensorRT does as int32 only",
            unsqueeze_to_min_rank: "that widens the attention, its new mask included",
        },
    ),
    Rewrite(
        apply_type_promotion,
        before={divide_exactly: "that expects operands in the dtype of the result"},
    ),
    Rewrite(divide_exactly),
    Rewrite(expand_normalization),
    Rewrite(
        resample_by_weighted_sums,
        before={unsqueeze_to_min_rank: "it makes means and gathers"},
    ),
    Rewrite(
        expand_ceil_mode_pooling,
        before={unsqueeze_to_min_rank: "the poolings that it makes may have three dimensions"},
    ),
    Rewrite(
        separate_attention_inputs,
        before={unsqueeze_to_min_rank: "after it, one query is a tensor for each attention"},
        library="tensorrt_rtx",
        needed_with="TensorRT-RTX 1.5",
    ),
    Rewrite(unsqueeze_to_min_rank),
    Rewrite(fit_scatter_source),
    Rewrite(
        normalize_negative_indices,
        before={flatten_index_put: "an index below 0 in one of several would carry to the next"},
    ),
    Rewrite(
        flatten_index_put,
        before={make_reshape_static: "that also makes the new reshapes"},
    ),
    Rewrite(make_reshape_static),
    Rewrite(
        keep_weights_int4,
        before={keep_weights_int8: "that replaces the cast, by which 4-bit weights are known"},
    ),
    Rewrite(keep_weights_int8),
    Rewrite(
        split_fake_quantize,
        before={dequantize_before_convolution: "its dequantize layers may reach a convolution"},
    ),
    Rewrite(
        add_bias_after_split,
        library="tensorrt_rtx",
        needed_with="TensorRT-RTX 1.6",
    ),
    Rewrite(dequantize_before_convolution, library="tensorrt_rtx", needed_with="TensorRT-RTX 1.5"),
    Rewrite(
        separate_attention_results,
        library="tensorrt_rtx",
        needed_with="TensorRT-RTX 1.5",
        fixed_in=("tensorrt-rtx", "1.6"),
    ),
)
"""All changes of a partition's graph before it is converted, in order."""

DECOMPOSITIONS: Final[dict[Any, Callable[..., Any]]] = {
    **dict.fromkeys(EMBEDDING_BAGS, embedding_bag),
    **SCATTER_REDUCTIONS,
    aten.diagonal.default: diagonal,
    aten.fmod.Scalar: fmod,
    aten.fmod.Tensor: fmod,
    aten.remainder.Scalar: float_remainder,
    aten.remainder.Scalar_Tensor: float_remainder,
    aten.remainder.Tensor: float_remainder,
    aten.log1p.default: log1p,
    aten.max.dim: max_with_indices,
    aten.min.dim: min_with_indices,
    aten.slice_scatter.default: slice_scatter,
    aten.var.correction: variance,
}
"""Replace Torch-TensorRT's converters (``entries.NEEDED_WITH``); each function gives the reason."""


_QUANTIZE: Final = Converter("quantize:add_quantize_layer")
_RESIZE: Final = Converter("resize:add_resize", applies="resize:has_computed_sizes")

CONVERTERS: Final[dict[Any, Converter]] = {
    aten.cumsum.default: Converter(
        "cumsum:add_cumulative_sum",
        available="cumsum:has_cumulative_layer",
    ),
    aten._to_copy.default: Converter("cast:add_cast"),
    aten.gather.default: Converter("gather:add_gather"),
    aten.where.self: Converter("where:add_select"),
    aten.slice.Tensor: Converter("slice:add_slice", applies="slice:is_computed_slice"),
    aten.select.int: Converter("slice:add_select_index", applies="slice:is_computed_index"),
    **dict.fromkeys(
        _RESIZES,
        _RESIZE,
    ),
    # Which of their calls are supported: ops/quantize.py.
    _quantized.quantize_per_tensor.default: _QUANTIZE,
    _quantized.quantize_per_channel.default: _QUANTIZE,
    _quantized.dequantize_per_tensor.default: _QUANTIZE,
    _quantized.dequantize_per_channel.default: _QUANTIZE,
    FAKE_QUANTIZE: Converter("quantize:add_fp8_layers"),
    dequantize_groups: Converter("int4_groups:add_int4_groups"),
    write_rows: Converter("kv_cache_update:add_cache_update"),
}
"""Replace Torch-TensorRT's converters; each function's module gives the reason."""


def converter_for(target: object) -> Converter | None:
    """Return our converter of an operator; None if there is none or TensorRT lacks its layer."""
    converter = CONVERTERS.get(target)
    return converter if converter is not None and converter.is_available() else None
