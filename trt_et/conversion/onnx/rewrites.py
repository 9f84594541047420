"""Brings a graph of plain ATen into the form that torch's ONNX exporter translates correctly.

The rewrites are those for TensorRT's networks, which the parser makes of the model, and some that
only the exporter or the parser needs. What only a layer of TensorRT can hold is not among them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, Final

import torch
from torch.fx import GraphModule, Node

from trt_et.conversion.decompose import inline_decompositions
from trt_et.conversion.onnx.quantize import ONNX_FP8, ONNX_QUANTIZE
from trt_et.conversion.onnx.translate import torch_decompositions
from trt_et.conversion.operator import Operator, Step
from trt_et.conversion.operators.attention import WRITTEN_OUT_ATTENTION, write_out
from trt_et.conversion.operators.caches import update_in_place
from trt_et.conversion.operators.types import cast
from trt_et.conversion.operators.uint8 import hold_uint8_as_float32
from trt_et.conversion.rewriting import rewrite
from trt_et.conversion.stages import OPERATORS, decompositions
from trt_et.engine_program.in_place_buffers import InPlaceBuffer
from trt_et.graph.arguments import named_arguments
from trt_et.graph.insertion import insert_call
from trt_et.graph.operators import FLOATS, HALF_FLOATS
from trt_et.graph.symbolic_shapes import is_static

aten = torch.ops.aten


def choose_in_one_dtype(node: Node) -> None:
    """Cast both choices to the result's dtype; ONNX takes no two."""
    dtype = node.meta["val"].dtype
    condition, *choices = node.args
    node.args = (condition, *(cast(node, choice, dtype) for choice in choices))


def sum_in_float32(node: Node) -> Any:  # noqa: ANN401
    """Add up in the result's dtype, half precision in float32; a single number is its own sum."""
    x: Any = node.args[0]
    dtype = node.meta["val"].dtype
    if x.meta["val"].dim() == 0:
        return cast(node, x, dtype)
    wide = torch.float32 if dtype in HALF_FLOATS else dtype
    if x.meta["val"].dtype == dtype == wide:
        return None
    total = insert_call(node, node.target, cast(node, x, wide), node.args[1])
    return cast(node, total, dtype)


def clamp_to_infinity(node: Node) -> Any:  # noqa: ANN401
    """Compare with infinite bounds; TensorRT's parser takes none in a Clip."""
    result, low, high = (*node.args, None, None)[:3]
    low, high = node.kwargs.get("min", low), node.kwargs.get("max", high)
    if not {low, high} & {math.inf, -math.inf}:
        return None
    sides = ((low, -math.inf, aten.maximum.default), (high, math.inf, aten.minimum.default))
    for bound, unbounded, choose in sides:
        if bound is None or bound == unbounded:
            continue
        dtype = node.meta["val"].dtype
        limit = insert_call(node, aten.full.default, [], bound, dtype=dtype)
        result = insert_call(node, choose, result, limit)
    return result


def copied(x: torch.Tensor, source: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    """Return ``source`` in the dtype and shape of ``x``; the exporter forgets the shape."""
    return source.to(x.dtype).expand(x.shape).clone()


def count_in_one_dtype(node: Node) -> None:
    """Turn a dynamic size into a number of the tensor's dtype; the exporter takes it as int64."""
    number: Any = node.args[1]
    if isinstance(number, Node) and isinstance(number.meta["val"], torch.SymInt):
        dtype = node.meta["val"].dtype
        number = insert_call(node, aten.scalar_tensor.default, number, dtype=dtype)
        node.update_arg(1, number)


def average_in_a_window(node: Node) -> Node | None:
    """Average whole images by pooling: for a ReduceMean, TensorRT-RTX 1.6 transposes them first.

    Its parser makes the same layer of a GlobalAveragePool as of a ReduceMean.
    """
    named = named_arguments(node)
    image: Any = named["self"]
    value = image.meta["val"]
    is_image = value.dim() == 4 and is_static(image) and value.dtype in FLOATS
    axes = {dim % 4 for dim in named["dim"] or ()}
    if not is_image or axes != {2, 3} or named["dtype"] not in (None, value.dtype):
        return None
    batch, channels, *window = value.shape
    pooled = insert_call(node, aten.avg_pool2d.default, image, window)
    if named["keepdim"]:
        return pooled
    return insert_call(node, aten.view.default, pooled, [batch, channels])


def _place(find: Any) -> Any:  # noqa: ANN401
    def place(x: torch.Tensor, dim: int | None = None, keepdim: bool = False) -> Any:  # noqa: ANN401
        """Return the place in a line, or among all numbers; the parser needs two dimensions."""
        if dim is not None and x.dim() > 1:
            return NotImplemented
        index = find(x.reshape(1, -1), 1)
        return index.reshape([1] * x.dim() if keepdim else [])

    return place


def write_out_masked(node: Node) -> Node | None:
    """Write out an attention with a mask.

    BERT with a mask has 44 kernels in place of 48. Without masks, torch's exporter writes out the
    better form: a ViT has 37 kernels, and 45 in this one.
    """
    return write_out(node) if named_arguments(node)["attn_mask"] is not None else None


_ARITHMETIC: Final = (aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor, aten.div.Tensor)

_REWRITES: Final = (
    Operator("ONNX's arithmetic of sizes", _ARITHMETIC, rewrite=count_in_one_dtype),
    Operator("ONNX's means of images", (aten.mean.dim,), rewrite=average_in_a_window),
    Operator("ONNX's where", (aten.where.self,), rewrite=choose_in_one_dtype),
    Operator("ONNX's clamp", (aten.clamp.default,), rewrite=clamp_to_infinity),
    Operator("ONNX's argmax", (aten.argmax.default,), decompose=_place(torch.argmax)),
    Operator("ONNX's argmin", (aten.argmin.default,), decompose=_place(torch.argmin)),
    Operator("ONNX's copy", (aten.copy.default,), decompose=copied),
    Operator("ONNX's cumsum", (aten.cumsum.default,), rewrite=sum_in_float32),
)


@cache
def _entries(library: str | None) -> tuple[Operator | Step, ...]:
    """Return the entries for models of one engine library; None: for models of all of them."""
    written_out = replace(WRITTEN_OUT_ATTENTION, rewrite=write_out_masked, library=None)
    own = (written_out if entry is WRITTEN_OUT_ATTENTION else entry for entry in OPERATORS)
    return tuple(
        entry
        for entry in (*own, *_REWRITES, ONNX_FP8, ONNX_QUANTIZE)
        if isinstance(entry, Step)
        or entry.library is None
        or (entry.library == library and not entry.is_fixed())
    )


@cache
def _decompositions() -> dict[Any, Callable[..., Any]]:
    return torch_decompositions() | decompositions(_entries(None))


def prepare_module(
    module: GraphModule,
    aliased_outputs: Sequence[InPlaceBuffer] = (),
    library: str | None = None,
) -> None:
    """Apply all decompositions and rewrites to a module; see ``model.convert_module``."""
    for entry in _entries(library):
        if isinstance(entry, Operator):
            rewrite(module, entry)
        elif entry is Step.HOLD_UINT8:
            hold_uint8_as_float32(module)
        elif entry is Step.UPDATE_IN_PLACE:
            update_in_place(module, aliased_outputs)
        else:
            inline_decompositions(module, _decompositions())
    for node in reversed(list(module.graph.nodes)):
        # Also detach_, which changes nothing that anybody reads.
        if node.op == "call_function" and not node.users:
            module.graph.erase_node(node)
