"""Inserts casts, so that some calls of a graph compute in a lower precision.

TensorRT's networks are strongly typed, so the precision is a property of the graph: weights are
cast, and the inputs, the outputs and the state of the graph stay as they are.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Collection, Sequence

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx import Node, map_arg
from torch.utils._pytree import tree_map

from trt_et.engine_program.editable_program import EditableGraph
from trt_et.errors import BuilderError
from trt_et.graph.insertion import insert_call
from trt_et.precision.rules import attention_masks, is_float32, largest_value

aten = torch.ops.aten


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
        name = str(dtype).removeprefix("torch.")
        limit = torch.finfo(dtype).max
        if not isinstance(value, FakeTensor) and largest_value(value) > limit:
            raise BuilderError(
                f"a constant has values beyond {limit:.6g}, the largest {name}, which were not "
                "known when the program was partitioned. Lower the exported program by "
                "to_edge_transform_and_lower, or name its operators in float32_ops"
            )
        name += "_mask" if saturate else ""
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
