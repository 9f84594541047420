"""Plans which operators of each partition keep float32 (the option ``precision``).

Each decision is marked on its node; the build applies the marks.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from trt_et.graph.fragment import Fragment, SupportCheck, Unsupported, fragment_of_call
from trt_et.graph.marks import KEEPS_FLOAT32
from trt_et.graph.subgraphs import Subgraph
from trt_et.ops.prebuilt_engine import is_prebuilt
from trt_et.precision.calibration import Calibration
from trt_et.precision.in_precision import in_precision
from trt_et.precision.program import FLOAT32
from trt_et.precision.rules import float32_reasons, is_float32


def mark_float32(
    program: ExportedProgram,
    graphs: Iterable[Subgraph],
    is_chosen: Callable[[Node], bool],
    calibration: Calibration,
) -> None:
    """Mark the calls of an Edge program that keep float32 by the caller's choice or calibration.

    Raises:
        PartitionError: The exported form of the program was not calibrated.
    """
    calibration.check_done(program)
    for subgraph in graphs:
        for node in subgraph.calls:
            # Another partitioner may have marked the node.
            reason = calibration.reason(node) or KEEPS_FLOAT32.of(node)
            FLOAT32.write(node, "float32_ops" if is_chosen(node) else reason)


class Float32Plan:
    """Chooses the operators that keep float32 in each partition of one program.

    Args:
        check: Whether the builder supports calls of the equivalent ATen graph.
        precision: The dtype of the other operators.
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

    def keep(self, fragment: Fragment, calls: Mapping[Node, Node]) -> dict[Node, str]:
        """Mark and return the nodes of a partition that keep float32, with the reasons.

        Args:
            fragment: The partition, which can be converted in float32.
            calls: Its nodes, with their calls in the fragment.
        """
        reasons = self._accepted.get(fragment.calls)
        if reasons is None:
            reasons = self._reasons(fragment, _marked(fragment))
        for node, call in calls.items():
            FLOAT32.write(node, reasons.get(call))
        return {
            node: reasons[call]
            for node, call in calls.items()
            if call in reasons and node.target is not operator.getitem
        }

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
