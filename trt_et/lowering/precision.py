"""Lets a partition compute in float16 or bfloat16 (the option ``precision``).

TensorRT's networks are strongly typed, so the precision is a property of the graph: this pass casts
weights, inserts casts, and leaves the inputs, the outputs and the state of the partition as they
are. Which operators keep float32: ``trt_et.lowering.float32_rules``.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import torch
from torch.fx import Node, map_arg
from torch.utils._pytree import tree_map

from trt_et.blob.model import Binding
from trt_et.graph.insertion import insert_call
from trt_et.graph.marks import Mark
from trt_et.lowering.batch_norms import fold_batch_norms
from trt_et.lowering.editable_program import EditableGraph, EditableProgram
from trt_et.lowering.float32_rules import attention_masks, float32_reasons, is_float32

aten = torch.ops.aten

PRECISION_DTYPES: Final = {"float16": torch.float16, "bfloat16": torch.bfloat16}
"""The values of the option ``precision``."""

FLOAT32: Final = Mark("float32")
"""Of a call in a partition that keeps float32 by the caller's choice: the reason."""


def compute_in(
    program: EditableProgram, precision: str, given: Mapping[str, str], outputs: Sequence[Binding]
) -> None:
    """Let a partition compute in one of ``PRECISION_DTYPES``; its bindings stay the same.

    Args:
        program: The partition; changed.
        precision: The precision.
        given: The names of the calls that keep float32 by the caller's choice, and why.
        outputs: The bindings of its outputs.
    """
    dtype = PRECISION_DTYPES[precision]
    fold_batch_norms(program, given, write_out=True)
    calls = [node for node in program.graph.nodes if node.op == "call_function"]
    # To look at a value must not change its precision.
    results: Any = program.graph.output_node().args[0]
    returned = [node for node, b in zip(results, outputs, strict=True) if not b.value_of]
    reasons = float32_reasons(
        calls,
        returned,
        program.values,
        dtype,
        {node: given[node.name] for node in calls if node.name in given},
    )
    insert_casts(program, dtype, {n for n in calls if is_float32(n) and n not in reasons})


def insert_casts(program: EditableGraph, dtype: torch.dtype, low: Collection[Node]) -> None:
    """Make the calls ``low`` compute in a precision; inputs and outputs keep their dtypes."""
    _Casts(program, dtype, low).insert()


class _Casts:
    """Inserts the casts of ``insert_casts``, each once."""

    def __init__(self, program: EditableGraph, dtype: torch.dtype, low: Collection[Node]) -> None:
        self._program = program
        self._dtype = dtype
        self._low = low
        self._made: dict[tuple[Node, torch.dtype, bool], Node] = {}

    def insert(self) -> None:
        floats = {node for node in self._program.graph.nodes if is_float32(node)}
        for node in [n for n in self._program.graph.nodes if n.op == "call_function"]:
            if node.target is not operator.getitem:
                masks = attention_masks(node)
                self._take(node, floats, masks if node in self._low else ())
            if node in self._low:
                self._lower_result(node)
        self._take(self._program.graph.output_node(), floats, ())

    def _take(self, node: Node, floats: Collection[Node], masks: Sequence[object]) -> None:
        def cast(argument: Node) -> Node:
            if argument not in floats or (argument in self._low) == (node in self._low):
                return argument
            dtype = torch.float32 if argument in self._low else self._dtype
            key = argument, dtype, argument in masks
            if key not in self._made:
                self._made[key] = self._cast(node, *key)
            return self._made[key]

        node.args, node.kwargs = map_arg((node.args, node.kwargs), cast)

    def _cast(self, before: Node, argument: Node, dtype: torch.dtype, saturate: bool) -> Node:
        value = self._program.values.get(argument)
        if value is None:
            source = _insert_clamp(before, argument, dtype) if saturate else argument
            return insert_call(before, aten._to_copy.default, source, dtype=dtype)
        # Masks of the smallest float32 would become minus infinity: a query whose keys are all
        # masked would then have no key.
        value = _clamped(value, dtype) if saturate else value
        name = str(dtype).removeprefix("torch.") + ("_mask" if saturate else "")
        fake = argument.meta["val"].to(dtype)
        return self._program.add_constant(argument, name, value.to(dtype), fake)

    def _lower_result(self, node: Node) -> None:
        node.meta["val"] = tree_map(
            lambda each: each.to(self._dtype) if each.dtype == torch.float32 else each,
            node.meta["val"],
        )
        if node.target is aten._to_copy.default:  # From float32 to float32.
            node.kwargs = {**node.kwargs, "dtype": self._dtype}


def _clamped(mask: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    limit = torch.finfo(dtype).max
    return torch.where(mask == -math.inf, mask, mask.clamp(-limit, limit))


def _insert_clamp(before: Node, mask: Node, dtype: torch.dtype) -> Node:
    limit = torch.finfo(dtype).max
    is_infinite = insert_call(before, aten.eq.Scalar, mask, -math.inf)
    clamped = insert_call(before, aten.clamp.default, mask, -limit, limit)
    return insert_call(before, aten.where.self, is_infinite, mask, clamped)
