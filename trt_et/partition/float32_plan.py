"""Plans which operators of each partition keep float32 (the option ``precision``)."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from dataclasses import replace

import torch
from torch.fx import Node

from trt_et.graph.fragment import Fragment, SupportCheck, Unsupported, fragment_of_call
from trt_et.graph.subgraphs import Subgraph
from trt_et.lowering.edge_to_aten import qualified_name
from trt_et.lowering.float32_rules import float32_reasons, is_float32
from trt_et.lowering.precision import FLOAT32
from trt_et.lowering.precision_fragment import in_precision
from trt_et.ops.prebuilt_engine import is_prebuilt
from trt_et.partition.calibration import Calibration
from trt_et.partition.node_choice import NodeChoice
from trt_et.partition.operator_support import OperatorSupport
from trt_et.partition.report import Partition


def mark_float32(graphs: Iterable[Subgraph], chosen: NodeChoice, calibration: Calibration) -> None:
    """Mark the calls of an Edge program that keep float32 by the caller's choice or calibration."""
    for subgraph in graphs:
        for node in subgraph.calls:
            is_chosen = chosen.reason(node) is not None
            # Another partitioner may have marked the node.
            FLOAT32.write(node, "float32_ops" if is_chosen else calibration.reason(node))


class Float32Plan:
    """Chooses the operators that keep float32 in each partition of one program.

    Args:
        check: Whether the builder supports calls of the equivalent ATen graph.
        precision: What the other operators compute in.
    """

    def __init__(self, check: SupportCheck, precision: torch.dtype) -> None:
        self._check = check
        self._precision = precision
        self._accepted: dict[tuple[Node, ...], dict[Node, str]] = {}

    def check(self, fragment: Fragment) -> Unsupported | None:
        """Return why the builder supports a group neither as its engine computes nor in float32."""
        if len(fragment.calls) > 1:
            reasons, low = self._divided(fragment, _marked(fragment))
            if low and self._check(in_precision(fragment, self._precision, low)) is None:
                self._accepted[fragment.calls] = reasons
                return None
        # A call with its expansions was checked with other constants and outputs than its group.
        self._accepted.pop(fragment.calls, None)
        return self._check(fragment)

    def apply(self, part: Partition, nodes: list[Node], support: OperatorSupport) -> Partition:
        """Return a partition with its ``float32``.

        The calls that the builder supports in float32 only are marked too.

        Args:
            part: The partition, which can be converted in float32.
            nodes: Its nodes.
            support: The supported nodes of its graph.
        """
        plain = support.equivalent
        fragment = support.fragment(nodes)
        reasons = self._accepted.get(fragment.calls)
        if reasons is None:
            given = _marked(fragment)
            reasons = self._reasons(fragment, given)
            for node in nodes:
                FLOAT32.write(node, given.get(plain[node]))
        kept = tuple(
            (support.subgraph.name_of(node), qualified_name(node), reasons[plain[node]])
            for node in nodes
            if plain[node] in reasons and node.target is not operator.getitem
        )
        return replace(part, float32=kept)

    def _reasons(self, fragment: Fragment, given: dict[Node, str]) -> dict[Node, str]:
        """Return the calls that keep float32, with the reasons.

        Args:
            fragment: The partition.
            given: Calls that keep float32 by the caller's choice. Those that the builder does not
                support in the precision are added.
        """
        while True:
            reasons, low = self._divided(fragment, given)
            refused = self._refused(fragment, low)
            if not refused:
                return reasons
            given.update(refused)

    def _divided(
        self, fragment: Fragment, given: Mapping[Node, str]
    ) -> tuple[dict[Node, str], list[Node]]:
        """Return the calls that keep float32, with the reasons, and those in the precision."""
        reasons = float32_reasons(
            fragment.calls, fragment.outputs, fragment.constants, self._precision, given
        )
        low = [call for call in fragment.calls if is_float32(call) and call not in reasons]
        return reasons, [] if any(is_prebuilt(call.target) for call in fragment.calls) else low

    def _refused(self, fragment: Fragment, low: list[Node]) -> dict[Node, str]:
        """Return the calls that the builder supports in float32 only, with the reasons."""
        if not low:
            return {}
        unsupported = self._check(in_precision(fragment, self._precision, low))
        if unsupported is None:
            return {}
        name = str(self._precision).removeprefix("torch.")
        why = f"TensorRT does not take it in {name}: {{}}"
        refused = {}
        for call in low:
            if call.target is not operator.getitem:
                alone = fragment_of_call(call, fragment.constants)
                inside = [each for each in alone.calls if is_float32(each)]
                refusal = self._check(in_precision(alone, self._precision, inside))
                if refusal is not None:
                    refused[call] = why.format(refusal.reason)
        if refused:
            return refused
        named = [call for call in low if call.name == unsupported.node]
        return dict.fromkeys(named or low, why.format(unsupported.reason))


def _marked(fragment: Fragment) -> dict[Node, str]:
    """Return the calls that keep float32 by the caller's choice, with the reasons."""
    return {call: reason for call in fragment.calls if (reason := FLOAT32.of(call))}
