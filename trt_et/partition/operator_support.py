"""Decides which nodes of an Edge program an engine can hold, with a reason for the others."""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterable, Mapping
from typing import Final

import torch
from executorch.exir.delegate import executorch_call_delegate
from torch._ops import HigherOrderOperator, OpOverload
from torch.fx import Node

from trt_et.engine_program.edge_to_aten import aten_target, to_aten
from trt_et.graph.cpu_kernels import unsupported_by_cpu_kernels
from trt_et.graph.fragment import (
    Fragment,
    SupportCheck,
    constants_among,
    fragment_of_call,
    fragment_of_group,
)
from trt_et.graph.subgraphs import Subgraph
from trt_et.ops.nms import BATCHED_NMS
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
from trt_et.ops.uint8 import takes_uint8
from trt_et.partition.internal_sizes import is_size
from trt_et.partition.node_choice import NodeChoice
from trt_et.partition.unsupported_values import (
    DTYPES,
    QUANTIZATION_DTYPES,
    draws_random_numbers,
    unsupported_values,
)

COMPUTES_A_SIZE: Final = "it computes a size, not a tensor"
DELEGATED: Final = "it is delegated already"

_RUNS_ON_THE_CPU: Final = "trt-et's kernel for it runs on the CPU"

_SIZES: Final = (int, float, bool, torch.SymInt, torch.SymFloat, torch.SymBool)

_MOST_UINT8: Final = 1 << 16  # A palette has 768 numbers.

_SOURCE_UNSUPPORTED: Final = "the operator whose result it selects stays on the CPU"


class OperatorSupport:
    """The supported nodes of one graph.

    Args:
        subgraph: The graph, in the Edge dialect or ATen; not changed.
        check: Whether the builder supports calls of the equivalent ATen graph.
        excluded: The nodes that the caller leaves to the CPU; it has marked the graph.
        only: The operators to look at; None: all. Other nodes count as unsupported.
        constants: The values of the graph's placeholders that never change, by name; None if a
            value is not known.

    Attributes:
        subgraph: The graph.
        constants: The argument ``constants``.
        equivalent: From its nodes to the nodes of the plain ATen graph.
        reasons: The reason for each unsupported ``call_function`` node.
        alone: The nodes that get a separate engine, each with the ``getitem`` nodes of its
            results. They count as unsupported, since no other node can join such an engine. The
            node is an engine already, or has no CPU kernel.
    """

    def __init__(
        self,
        subgraph: Subgraph,
        check: SupportCheck,
        excluded: NodeChoice | None = None,
        only: Collection[OpOverload] | None = None,
        constants: Mapping[str, torch.Tensor | None] | None = None,
    ) -> None:
        self.subgraph = subgraph
        self.equivalent: Mapping[Node, Node] = to_aten(subgraph.graph)[1]
        self.constants = constants or {}
        self._constants = constants_among(self.equivalent.values(), self.constants)
        self._folded: dict[Node, torch.Tensor | None] = dict(self._constants)
        self._check = check
        self._excluded = excluded or NodeChoice()
        self.reasons: dict[Node, str] = {}
        self.alone: dict[Node, list[Node]] = {}
        self._supported: set[Node] = set()
        for node in subgraph.graph.nodes:
            if node.op != "call_function" or (only is not None and node.target not in only):
                continue
            if is_prebuilt(aten_target(node)):
                self.alone[node] = [node]
                continue
            if node.target is operator.getitem and node.args[0] in self.alone:
                self.alone[node.args[0]].append(node)
                continue
            reason = self._reason(node)
            if reason is None:
                self._supported.add(node)
                self._fold(self.equivalent[node])
            else:
                self.reasons[node] = reason

    def is_supported(self, node: Node) -> bool:
        """Return whether an engine can hold the node."""
        return node in self._supported

    def has_cpu_kernel(self, node: Node) -> bool:
        """Return whether the stock ExecuTorch runtime can run the node, or its decomposition."""
        plain = self.equivalent[node]
        return is_quantization(plain.target) or unsupported_by_cpu_kernels(plain) is None

    def is_cast_of_weight(self, node: Node) -> bool:
        """Return whether a node casts an int8 weight to float."""
        return is_weight_cast(self.equivalent[node])

    def takes_constants_only(self, nodes: Collection[Node]) -> bool:
        """Return whether nodes take nothing from outside that may change."""
        inside = set(nodes)
        taken = {source for node in nodes for source in node.all_input_nodes} - inside
        return all(self.equivalent[source] in self._constants for source in taken)

    def cut_off_from_weights(self, nodes: Collection[Node]) -> list[Node]:
        """Return the nodes of a partition that need a weight's values and cannot have them.

        The reshapes of the weight must also be in the partition, and an int8 weight must not leave
        it: TensorRT has int8 tensors only between quantize layers.
        """
        inside = {self.equivalent[node] for node in nodes}
        return [
            node
            for node in nodes
            if not all(
                _is_within(value, inside) for value in self._needed_values(self.equivalent[node])
            )
            or (self._is_int8_weight(node) and not set(nodes).issuperset(node.users))
        ]

    def _needed_values(self, node: Node) -> list[object]:
        if is_weight_cast(node):
            return [node.args[0]]
        return list(scale_arguments(node).values()) if is_quantization(node.target) else []

    def _is_int8_weight(self, node: Node) -> bool:
        plain = self.equivalent[node]
        value = plain.meta.get("val")
        return (
            moves_numbers(plain)
            and isinstance(value, torch.Tensor)
            and value.dtype in QUANTIZED_DTYPES
        )

    def fragment(self, nodes: Iterable[Node]) -> Fragment:
        """Return the calls of a partition, given in program order, in the plain ATen graph."""
        return fragment_of_group((self.equivalent[node] for node in nodes), self._constants)

    def unsupported_in(self, nodes: Collection[Node]) -> tuple[list[Node], str] | None:
        """Return the nodes of a partition that keep it from being converted, and why.

        Each node can be converted on its own; a combination of them cannot.

        Returns:
            The nodes that the reason names, all nodes if it names none; None if it can be
            converted. For a size, the operators that use it: no partition computes a size for the
            CPU.
        """
        unsupported = self._check(self.fragment(nodes))
        if unsupported is None:
            return None
        named = [node for node in nodes if self.equivalent[node].name == unsupported.node]
        return _operators_of(named or nodes), unsupported.reason

    def set_apart(self, node: Node) -> None:
        """Give a supported node a separate engine."""
        self.alone[node] = [node, *(u for u in node.users if u.target is operator.getitem)]
        self._supported.difference_update(self.alone[node])

    def accept(self, sizes: Iterable[Node]) -> None:
        """Support sizes that a partition computes itself."""
        for node in sizes:
            self._supported.add(node)
            del self.reasons[node]

    def refuse(self, nodes: Iterable[Node], reason: str) -> None:
        """Refuse supported nodes, for a reason that appears only in the whole partition."""
        for node in nodes:
            self._supported.discard(node)
            self.reasons[node] = reason
            picks = [user for user in node.users if user.target is operator.getitem]
            self.refuse(picks, _SOURCE_UNSUPPORTED)

    def _reason(self, node: Node) -> str | None:
        if node.target is executorch_call_delegate:
            return DELEGATED
        if node.target is operator.getitem:
            return self._reason_for_getitem(node)
        target = aten_target(node)
        if isinstance(target, HigherOrderOperator):
            return _reason_for_higher_order(node)
        if self.subgraph.obstacle is not None:
            return self.subgraph.obstacle
        if not isinstance(target, OpOverload) or isinstance(node.meta.get("val"), _SIZES):
            return COMPUTES_A_SIZE
        if node.meta.get("val") is None:
            return "it returns no tensor"
        reason = self._excluded.reason(node)
        if reason is not None:
            return reason
        if target is BATCHED_NMS:
            return _RUNS_ON_THE_CPU
        if draws_random_numbers(node, target):
            # Torch-TensorRT draws the numbers once, when the engine is built.
            return "it draws random numbers, which an engine would freeze"
        plain = self.equivalent[node]
        if is_quantization(target):
            refused = quantization_refusal(plain) or self._reason_for_scales(plain)
            return refused or unsupported_values(node, DTYPES | QUANTIZATION_DTYPES)
        dtypes = DTYPES | {torch.uint8} if self._holds_uint8(plain) else DTYPES
        if not self._is_constant(plain.args[0] if plain.args else None):
            return unsupported_values(node, dtypes) or self._conversion_reason(plain)
        # An engine keeps int8 weights until they become floats.
        if is_weight_cast(plain):
            return unsupported_values(node, DTYPES | QUANTIZED_DTYPES)
        if moves_numbers(plain):
            dtypes |= QUANTIZED_DTYPES
        return unsupported_values(node, dtypes) or self._conversion_reason(plain)

    def _holds_uint8(self, call: Node) -> bool:
        """Return whether an engine holds a call's uint8 tensors, as float32: no large weights."""
        source = constant_source(call.args[0]) if call.args else None
        is_weight = source in self._constants and source.meta["val"].numel() > _MOST_UINT8
        return takes_uint8(call) and not is_weight

    def _conversion_reason(self, call: Node) -> str | None:
        unsupported = self._check(fragment_of_call(call, self._folded))
        return unsupported.reason if unsupported is not None else None

    def _fold(self, call: Node) -> None:
        """Remember a call of constants: an engine holds its result as a constant."""
        sources = call.all_input_nodes
        if sources and all(source in self._folded for source in sources):
            self._folded[call] = None

    def _is_constant(self, value: object) -> bool:
        """Return whether a value holds the numbers of a weight."""
        source = constant_source(value)
        return source in self._constants

    def _reason_for_scales(self, node: Node) -> str | None:
        for name, value in scale_arguments(node).items():
            if not self._is_constant(value):
                return f"its {name} come from outside of its graph; TensorRT needs constants"
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
    """Return whether these nodes include all reshapes between a weight and its use."""
    while isinstance(value, Node) and moves_numbers(value):
        if value not in inside:
            return False
        value = value.args[0]
    return True


def _operators_of(nodes: Iterable[Node]) -> list[Node]:
    """Return the nodes, with the users of a size in its place."""
    chosen: dict[Node, None] = {}
    for node in nodes:
        operators = _operators_of(node.users) if is_size(node) else [node]
        chosen.update(dict.fromkeys(operators))
    return list(chosen)


def _reason_for_higher_order(node: Node) -> str:
    if str(node.target) != "auto_functionalized_v2":
        return "control flow stays on the CPU"
    if "llama.update_cache" in str(node.args[0]):
        return (
            "TensorRT does not compute with int8 caches; leave out ExecuTorch's quantize_kv_cache"
        )
    return f"{node.args[0]} writes to its arguments"
