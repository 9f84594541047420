"""Plans which operators of each partition keep float32 (the option ``precision``)."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, MutableMapping
from dataclasses import replace

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from trt_et.graph.constants import known_constants
from trt_et.graph.fragment import (
    Fragment,
    SupportCheck,
    Unsupported,
    constants_among,
    fragment_of_call,
    fragment_of_group,
)
from trt_et.graph.subgraphs import Subgraph, subgraphs
from trt_et.lowering.edge_to_aten import qualified_name, to_aten
from trt_et.lowering.float32_rules import attention_masks, float32_reasons, is_float32
from trt_et.lowering.precision_fragment import in_precision
from trt_et.ops.prebuilt_engine import is_prebuilt
from trt_et.partition.excluded_ops import ExcludedOps, exported_name
from trt_et.partition.report import Partition


def chosen_for_float32(
    program: ExportedProgram,
    chosen: ExcludedOps,
    largest: Mapping[str, float],
    precision: torch.dtype,
) -> dict[tuple[str, str], str]:
    """Return the calls that keep float32 by the caller's choice, and why.

    Args:
        program: Edge dialect.
        chosen: The value of ``float32_ops``.
        largest: The largest values of tensors seen in calibration, by their names in the exported
            program.
        precision: What the other calls compute in.

    Returns:
        Reasons by the path of the subgraph and the name of the node.
    """
    limit = float(torch.finfo(precision).max) / 2
    beyond = {name for name, value in largest.items() if value > limit}
    found = {}
    for subgraph in subgraphs(program.graph_module):
        for node in subgraph.graph.nodes:
            if node.op != "call_function":
                continue
            masks = attention_masks(node)
            taken = [source for source in node.all_input_nodes if source not in masks]
            if chosen.reason(node, subgraph) is not None:
                found[subgraph.path, node.name] = "float32_ops"
            elif not subgraph.path and any(
                exported_name(each) in beyond for each in (node, *taken)
            ):
                found[subgraph.path, node.name] = f"values beyond {limit:.3g} in calibration"
    return found


def in_precision_first(check: SupportCheck, precision: torch.dtype) -> SupportCheck:
    """Return a check that converts groups of calls as their engine will compute, or in float32.

    ``with_float32_plan`` asks about the same groups again; ``check`` remembers its answers.

    Args:
        check: Whether the builder supports calls of the equivalent ATen graph.
        precision: What calls compute in that are not kept in float32.
    """

    def asked(fragment: Fragment) -> Unsupported | None:
        if len(fragment.calls) > 1:
            _, low = _divided(fragment, precision, {})
            if low and check(in_precision(fragment, precision, low)) is None:
                return None
        return check(fragment)

    return asked


def _divided(
    fragment: Fragment, precision: torch.dtype, given: Mapping[Node, str]
) -> tuple[dict[Node, str], list[Node]]:
    """Return the calls that keep float32, with the reasons, and the calls in the precision."""
    reasons = float32_reasons(
        fragment.calls, fragment.outputs, fragment.constants, precision, given
    )
    low = [call for call in fragment.calls if is_float32(call) and call not in reasons]
    return reasons, [] if any(is_prebuilt(call.target) for call in fragment.calls) else low


def with_float32_plan(
    program: ExportedProgram,
    parts: Iterable[tuple[Partition, list[Node]]],
    weights: Mapping[str, torch.Tensor],
    chosen: MutableMapping[tuple[str, str], str],
    precision: torch.dtype,
    check: SupportCheck,
) -> list[tuple[Partition, list[Node]]]:
    """Return the partitions with ``Partition.float32``.

    Args:
        program: Edge dialect.
        parts: Its partitions with their nodes, which can be converted in float32.
        weights: The values of its weights, by name.
        chosen: See ``chosen_for_float32``. The calls that the builder does not support in the
            precision are added.
        precision: What the other calls compute in.
        check: Whether the builder supports calls of the equivalent ATen graph.
    """
    graphs = {
        subgraph.path: (subgraph, to_aten(subgraph.graph).nodes)
        for subgraph in subgraphs(program.graph_module)
    }
    constants = known_constants(program, weights)
    planned = []
    for part, nodes in parts:
        subgraph, equivalent = graphs[part.subgraph]
        plan = _Plan(subgraph, equivalent, nodes, constants, precision)
        given = {
            equivalent[node]: chosen[subgraph.path, node.name]
            for node in nodes
            if (subgraph.path, node.name) in chosen
        }
        reasons = plan.reasons(given, check)
        for node in nodes:
            if equivalent[node] in given:
                chosen.setdefault((subgraph.path, node.name), given[equivalent[node]])
        kept = tuple(
            (subgraph.name_of(node), qualified_name(node), reasons[equivalent[node]])
            for node in nodes
            if equivalent[node] in reasons and node.target is not operator.getitem
        )
        planned.append((replace(part, float32=kept), nodes))
    return planned


class _Plan:
    """The calls of one partition that keep float32.

    Args:
        subgraph: The graph of the partition.
        equivalent: Its nodes to those of the plain ATen graph.
        nodes: The partition.
        constants: The values of the program's constants, by placeholder.
        precision: What the other calls compute in.
    """

    def __init__(
        self,
        subgraph: Subgraph,
        equivalent: Mapping[Node, Node],
        nodes: list[Node],
        constants: Mapping[str, torch.Tensor | None],
        precision: torch.dtype,
    ) -> None:
        known = {} if subgraph.path else constants_among(equivalent.values(), constants)
        self._fragment = fragment_of_group([equivalent[node] for node in nodes], known)
        self._precision = precision

    def reasons(self, given: dict[Node, str], check: SupportCheck) -> dict[Node, str]:
        """Return the calls that keep float32, with the reasons.

        Args:
            given: Calls that keep float32 by the caller's choice. Those that the builder does not
                support in the precision are added.
            check: Whether the builder supports calls.
        """
        while True:
            reasons, low = _divided(self._fragment, self._precision, given)
            refused = self._refused(low, check)
            if not refused:
                return reasons
            given.update(refused)

    def _refused(self, low: list[Node], check: SupportCheck) -> dict[Node, str]:
        """Return the calls that the builder supports in float32 only."""
        if not low:
            return {}
        unsupported = check(in_precision(self._fragment, self._precision, low))
        if unsupported is None:
            return {}
        refused = {}
        for call in low:
            if call.target is not operator.getitem:
                alone = fragment_of_call(call, self._fragment.constants)
                inside = [each for each in alone.calls if is_float32(each)]
                refusal = check(in_precision(alone, self._precision, inside))
                if refusal is not None:
                    refused[call] = self._reason(refusal.reason)
        if refused:
            return refused
        named = [call for call in low if call.name == unsupported.node]
        return dict.fromkeys(named or low, self._reason(unsupported.reason))

    def _reason(self, reason: str) -> str:
        name = str(self._precision).removeprefix("torch.")
        return f"TensorRT does not take it in {name}: {reason}"
