"""Lets a partition compute in float16 or bfloat16 (the option ``precision``).

TensorRT's networks are strongly typed, so the precision is a property of the graph: this pass casts
weights, inserts casts, and leaves the inputs, the outputs and the state of the partition as they
are. Which operators keep float32: ``trt_et.lowering.float32_rules``.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Protocol

import torch
from torch.fx import Graph, Node, map_arg

from trt_et.graph.insertion import insert_call
from trt_et.lowering.batch_norms import fold_batch_norms
from trt_et.lowering.editable_program import EditableProgram
from trt_et.lowering.float32_rules import attention_masks, float32_reasons, is_float32
from trt_et.lowering.lowered_partition import LoweredPartition
from trt_et.ops.prebuilt_engine import is_prebuilt

__all__ = ["PRECISION_DTYPES", "compute_in", "insert_casts"]

aten = torch.ops.aten

PRECISION_DTYPES: Final = {"float16": torch.float16, "bfloat16": torch.bfloat16}
"""The values of the option ``precision``."""


def compute_in(
    lowered: LoweredPartition, precision: str, float32: Mapping[str, str]
) -> LoweredPartition:
    """Return a partition that computes in a lower precision; its bindings are the same.

    Args:
        lowered: The partition; not changed.
        precision: One of ``PRECISION_DTYPES``.
        float32: The calls that keep float32, by their names in the Edge program, and why.
    """
    if any(is_prebuilt(node.target) for node in lowered.program.graph.nodes):
        return lowered
    given = {name: float32[old] for name, old in lowered.names.items() if old in float32}
    dtype = PRECISION_DTYPES[precision]
    program = EditableProgram(lowered.program, lowered.constants)
    fold_batch_norms(program, given)
    calls = [node for node in program.graph.nodes if node.op == "call_function"]
    # To look at a value must not change its precision.
    results: Any = program.graph.output_node().args[0]
    returned = [node for node, b in zip(results, lowered.outputs, strict=True) if not b.value_of]
    reasons = float32_reasons(
        calls,
        returned,
        program.values,
        dtype,
        {node: given[node.name] for node in calls if node.name in given},
    )
    insert_casts(program, dtype, {n for n in calls if is_float32(n) and n not in reasons})
    return replace(lowered, program=program.program())


class _Editable(Protocol):
    """A graph that can be changed, and its constants: see ``EditableProgram``."""

    graph: Graph

    @property
    def values(self) -> Mapping[Node, torch.Tensor]: ...

    def add_constant(self, like: Node, suffix: str, value: torch.Tensor, fake: Any) -> Node: ...  # noqa: ANN401


def insert_casts(program: _Editable, dtype: torch.dtype, low: Collection[Node]) -> None:
    """Make calls compute in a lower precision.

    Args:
        program: Changed in place; its inputs and outputs keep their dtypes.
        dtype: The precision.
        low: The calls that compute in it.
    """
    calls = [node for node in program.graph.nodes if node.op == "call_function"]
    _Casts(program, dtype, low).insert(calls)


class _Casts:
    """Makes calls compute in a lower precision, and inserts the casts between them and others.

    Args:
        program: Changed in place.
        dtype: The precision.
        low: The calls that compute in it.
    """

    def __init__(self, program: _Editable, dtype: torch.dtype, low: Collection[Node]) -> None:
        self._program = program
        self._dtype = dtype
        self._name = str(dtype).removeprefix("torch.")
        self._low = low
        self._made: dict[tuple[Node, str], Node] = {}

    def insert(self, calls: Sequence[Node]) -> None:
        """Insert the casts; ``calls`` are the program's calls, in order."""
        floats = {node for node in self._program.graph.nodes if is_float32(node)}
        for node in calls:
            if node.target is not operator.getitem:
                masks = attention_masks(node)
                self._take(node, floats, masks if node in self._low else ())
            if node in self._low:
                self._lower_result(node)
        self._take(self._program.graph.output_node(), floats, ())

    def _take(self, node: Node, floats: Collection[Node], masks: Sequence[object]) -> None:
        def cast(argument: Node) -> Node:
            if argument not in floats:
                return argument
            if node not in self._low:
                return self._raised(argument, node) if argument in self._low else argument
            if argument in self._low:
                return argument
            return self._lowered(argument, node, saturate=argument in masks)

        node.args, node.kwargs = map_arg((node.args, node.kwargs), cast)

    def _raised(self, argument: Node, before: Node) -> Node:
        key = (argument, "float32")
        if key not in self._made:
            self._made[key] = _insert_cast(before, argument, torch.float32)
        return self._made[key]

    def _lowered(self, argument: Node, before: Node, *, saturate: bool) -> Node:
        name = f"{self._name}_mask" if saturate else self._name
        key = (argument, name)
        if key in self._made:
            return self._made[key]
        value = self._program.values.get(argument)
        if value is not None:
            # Masks of the smallest float32 would become minus infinity: a query whose keys are all
            # masked would then have no key.
            value = _clamped(value, self._dtype) if saturate else value
            fake = argument.meta["val"].to(self._dtype)
            made = self._program.add_constant(argument, name, value.to(self._dtype), fake)
        else:
            source = _insert_clamp(before, argument, self._dtype) if saturate else argument
            made = _insert_cast(before, source, self._dtype)
        self._made[key] = made
        return made

    def _lower_result(self, node: Node) -> None:
        value = node.meta["val"]
        lowered = [
            each.to(self._dtype) if each.dtype == torch.float32 else each
            for each in (value if isinstance(value, tuple | list) else [value])
        ]
        node.meta["val"] = type(value)(lowered) if isinstance(value, tuple | list) else lowered[0]
        if node.target is aten._to_copy.default:  # From float32 to float32.
            node.kwargs = {**node.kwargs, "dtype": self._dtype}


def _insert_cast(before: Node, argument: Node, dtype: torch.dtype) -> Node:
    with before.graph.inserting_before(before):
        node = before.graph.call_function(aten._to_copy.default, (argument,), {"dtype": dtype})
    node.meta["val"] = argument.meta["val"].to(dtype)
    return node


def _clamped(mask: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    limit = torch.finfo(dtype).max
    return torch.where(mask == -math.inf, mask, mask.clamp(-limit, limit))


def _insert_clamp(before: Node, mask: Node, dtype: torch.dtype) -> Node:
    limit = torch.finfo(dtype).max
    is_infinite = insert_call(before, aten.eq.Scalar, mask, -math.inf)
    clamped = insert_call(before, aten.clamp.default, mask, -limit, limit)
    return insert_call(before, aten.where.self, is_infinite, mask, clamped)
