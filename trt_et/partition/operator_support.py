"""Which nodes of an Edge program go into an engine, and why the others do not."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

import torch
from executorch.exir.delegate import executorch_call_delegate
from torch._ops import HigherOrderOperator, OpOverload
from torch.fx import Node

from trt_et.graph.subgraphs import Subgraph
from trt_et.lowering.edge_to_aten import aten_target, to_aten
from trt_et.ops.prebuilt_engine import is_prebuilt
from trt_et.ops.quantize import (
    QUANTIZED_DTYPES,
    constant_source,
    is_quantization,
    is_weight_cast,
    moves_numbers,
    quantization_refusal,
    scale_arguments,
)
from trt_et.partition.excluded_ops import ExcludedOps
from trt_et.partition.unsupported_values import (
    DTYPES,
    QUANTIZATION_DTYPES,
    draws_random_numbers,
    unsupported_values,
)

__all__ = [
    "COMPUTES_A_SIZE",
    "OperatorSupport",
    "SupportCheck",
]

SupportCheck = Callable[[Node], str | None]
"""Why a node of a plain ATen graph is unsupported; None if it is supported."""

COMPUTES_A_SIZE: Final = "it computes a size, not a tensor"

_SIZES: Final = (int, float, bool, torch.SymInt, torch.SymFloat, torch.SymBool)

_SOURCE_UNSUPPORTED: Final = "the operator whose result it selects stays on the CPU"


class OperatorSupport:
    """The nodes of one graph that an engine can hold.

    Args:
        subgraph: The graph, in the Edge dialect (or ATen); not changed.
        check: Whether the builder supports a node of the equivalent ATen graph.
        excluded: What the caller leaves to the CPU.
        only: The operators to look at; None: all. Other nodes count as unsupported.
        constants: The names of the graph's placeholders whose values never change.

    Attributes:
        subgraph: The graph.
        reasons: For every ``call_function`` node that stays out, why.
        prebuilt: The engines that the program holds already, each with the nodes that pick its
            results; they count as unsupported, since nothing else can be in such an engine.
    """

    def __init__(
        self,
        subgraph: Subgraph,
        check: SupportCheck,
        excluded: ExcludedOps | None = None,
        only: Collection[OpOverload] | None = None,
        constants: Collection[str] = (),
    ) -> None:
        self.subgraph = subgraph
        self._constants = frozenset(constants)
        self._equivalent: Mapping[Node, Node] = to_aten(subgraph.graph).nodes
        self._check = check
        self._excluded = excluded or ExcludedOps()
        self.reasons: dict[Node, str] = {}
        self.prebuilt: dict[Node, list[Node]] = {}
        self._supported: set[Node] = set()
        for node in subgraph.graph.nodes:
            if node.op != "call_function" or (only is not None and node.target not in only):
                continue
            if is_prebuilt(aten_target(node)):
                self.prebuilt[node] = [node]
                continue
            if node.target is operator.getitem and node.args[0] in self.prebuilt:
                self.prebuilt[node.args[0]].append(node)
                continue
            reason = self._reason(node)
            if reason is None:
                self._supported.add(node)
            else:
                self.reasons[node] = reason

    def is_supported(self, node: Node) -> bool:
        """Whether an engine can hold the node."""
        return node in self._supported

    def is_cast_of_weight(self, node: Node) -> bool:
        """Whether a node makes floats of an int8 weight."""
        return is_weight_cast(self._equivalent[node])

    def cut_off_from_weights(self, nodes: Collection[Node]) -> list[Node]:
        """The nodes of a partition that need a weight's values, where it does not reach them.

        The weight may be reshaped on its way; that must be in the partition too, and an int8 weight
        must not leave it: TensorRT has such tensors between quantize layers only.
        """
        inside = {self._equivalent[node] for node in nodes}
        return [
            node
            for node in nodes
            if not all(
                _is_within(value, inside) for value in self._needed_values(self._equivalent[node])
            )
            or (self._is_int8_weight(node) and not set(nodes).issuperset(node.users))
        ]

    def _needed_values(self, node: Node) -> list[object]:
        if is_weight_cast(node):
            return [node.args[0]]
        return list(scale_arguments(node).values()) if is_quantization(node.target) else []

    def _is_int8_weight(self, node: Node) -> bool:
        plain = self._equivalent[node]
        value = plain.meta.get("val")
        return (
            moves_numbers(plain)
            and isinstance(value, torch.Tensor)
            and value.dtype in QUANTIZED_DTYPES
        )

    def accept(self, sizes: Iterable[Node]) -> None:
        """Take sizes in that a partition computes itself."""
        for node in sizes:
            self._supported.add(node)
            del self.reasons[node]

    def refuse(self, nodes: Iterable[Node], reason: str) -> None:
        """Take nodes out again, for a reason that only shows in the whole partition."""
        for node in nodes:
            self._supported.discard(node)
            self.reasons[node] = reason
            picks = [user for user in node.users if user.target is operator.getitem]
            self.refuse(picks, _SOURCE_UNSUPPORTED)

    def _reason(self, node: Node) -> str | None:
        if node.target is executorch_call_delegate:
            return "it is delegated already"
        if node.target is operator.getitem:
            return self._reason_for_getitem(node)
        target = aten_target(node)
        if isinstance(target, HigherOrderOperator):
            return "control flow stays on the CPU"
        if self.subgraph.obstacle is not None:
            return self.subgraph.obstacle
        if not isinstance(target, OpOverload) or isinstance(node.meta.get("val"), _SIZES):
            return COMPUTES_A_SIZE
        reason = self._excluded.reason(node, self.subgraph)
        if reason is not None:
            return reason
        if draws_random_numbers(node, target):
            # Torch-TensorRT's converters draw the numbers once, when the engine is built.
            return "it draws random numbers, which an engine would freeze"
        plain = self._equivalent[node]
        if is_quantization(target):
            refused = quantization_refusal(plain) or self._reason_for_scales(plain)
            return refused or unsupported_values(node, DTYPES | QUANTIZATION_DTYPES)
        if not self._is_constant(plain.args[0] if plain.args else None):
            return unsupported_values(node) or self._check(plain)
        # Weights that are int8: an engine keeps them so, up to where they become floats.
        if is_weight_cast(plain):
            return unsupported_values(node, DTYPES | QUANTIZED_DTYPES)
        dtypes = DTYPES | QUANTIZED_DTYPES if moves_numbers(plain) else DTYPES
        return unsupported_values(node, dtypes) or self._check(plain)

    def _is_constant(self, value: object) -> bool:
        """Whether the numbers of a value are those of a weight."""
        source = constant_source(value)
        return source is not None and source.op == "placeholder" and source.name in self._constants

    def _reason_for_scales(self, node: Node) -> str | None:
        for name, value in scale_arguments(node).items():
            if not self._is_constant(value):
                return f"its {name} come from outside of its graph; TensorRT's are fixed"
        return None

    def _reason_for_getitem(self, node: Node) -> str | None:
        producer = node.args[0]
        if isinstance(producer, Node):
            if producer.target is executorch_call_delegate:
                return "it is an output of an existing delegate"
            if producer in self._supported:
                return None
        return _SOURCE_UNSUPPORTED


def _is_within(value: object, inside: Collection[Node]) -> bool:
    """Whether all that is between a weight and its use is among these nodes."""
    while isinstance(value, Node) and moves_numbers(value):
        if value not in inside:
            return False
        value = value.args[0]
    return True
