"""Which parts of a program become engines, and for which GPU."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from executorch.exir.backend.compile_spec_schema import CompileSpec
from executorch.exir.backend.partitioner import DelegationSpec, Partitioner, PartitionResult
from executorch.exir.backend.utils import tag_constant_data
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.fx import Node
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner

from trt_et.backend import TensorRTBackend, check_no_conflict
from trt_et.builders import BuildOptions, EngineBuilder, make_builder
from trt_et.claims import refusal_for
from trt_et.edge_dialect import qualified_name
from trt_et.errors import OptionError
from trt_et.operator_support import OperatorSupport, is_compute, kept_whole, must_be_delegated
from trt_et.partition_specs import PartitionPlan, PartitionSpecs
from trt_et.shapes import size_symbols, tensor_symbols
from trt_et.target_device import explicit_device, parse_device

__all__ = ["Partition", "PartitionReport", "TensorRTPartitioner"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Partition:
    """One part of a program that becomes one engine.

    Attributes:
        index: Its number, counted in program order.
        name: ``tensorrt_<index>``.
        operators: The operators that it holds, in program order.
    """

    index: int
    name: str
    operators: tuple[str, ...]


@dataclass(frozen=True)
class PartitionReport:
    """What :meth:`TensorRTPartitioner.partition` decided.

    Attributes:
        partitions: The engines to be.
        left_out: For every other operator call: node name, operator, and the reason.
    """

    partitions: tuple[Partition, ...]
    left_out: tuple[tuple[str, str, str], ...]


DeviceChoice = str | int | Callable[[Partition], str | int]


class TensorRTPartitioner(Partitioner):
    """Claims what TensorRT can run of an exported program; each partition becomes one engine.

    Args:
        compile_specs: Given to every partition. A ``target_device`` spec among them is used
            verbatim; otherwise each partition gets the device parsed out of its engine blob.
        builder: ``"auto"`` (the best real TensorRT installed), ``"tensorrt"``, ``"tensorrt_rtx"``,
            ``"reference"`` (runs on simulated GPUs), or an object with a ``name`` and a
            ``build(request)`` method.
        device: The GPU to build engines for: ``"cuda:1"``, an index, or a function from
            :class:`Partition` to either. None: the GPU that an explicit ``target_device`` names,
            else ``cuda:0``.
        compute_capabilities: Targets such as ``["8.6", "12.0"]``, where the builder can choose.
        optimization_level: TensorRT's builder optimization level, 0 to 5.
        min_block_size: Smallest number of operators worth an engine. Partitions that hold an
            operator without a CPU kernel are built however small they are.
        excluded_ops: Operators to leave to the CPU: overloads, or names like ``"aten.add.Tensor"``.

    Attributes:
        report: What the last :meth:`partition` decided; None before.

    Raises:
        OptionError: An option has an impossible value.
        BuilderUnavailable: The builder's packages are not installed; says how to install them.
        BackendConflictError: Another ``TensorRTBackend`` class is loaded in this process.
    """

    def __init__(
        self,
        compile_specs: Sequence[CompileSpec] | None = None,
        *,
        builder: str | EngineBuilder = "auto",
        device: DeviceChoice | None = None,
        compute_capabilities: Sequence[str] | None = None,
        optimization_level: int | None = None,
        min_block_size: int = 1,
        excluded_ops: Collection[OpOverload | str] = (),
    ) -> None:
        super().__init__()
        check_no_conflict()
        if type(min_block_size) is not int or min_block_size < 1:
            raise OptionError(f"min_block_size is {min_block_size!r}; expected an integer >= 1")
        if isinstance(excluded_ops, str):
            raise OptionError("excluded_ops is a collection of operators, not one string")
        self._compile_specs = list(compile_specs or ())
        self._builder = make_builder(builder)
        self._options = BuildOptions.checked(compute_capabilities, optimization_level)
        self._min_block_size = min_block_size
        self._excluded = tuple(excluded_ops)
        self._device = self._checked_device(device)
        self.report: PartitionReport | None = None

    def partition(self, exported_program: ExportedProgram) -> PartitionResult:
        """Tag the nodes of an Edge program that become engines; nothing is built yet."""
        check_no_conflict()
        support = OperatorSupport(
            exported_program.graph, refusal_for(self._builder), self._excluded
        )
        groups = self._worthwhile(_propose(exported_program, support), support)
        partitions = []
        tags: dict[str, DelegationSpec] = {}
        for index, nodes in enumerate(groups):
            name = f"tensorrt_{index}"
            found = Partition(index, name, tuple(qualified_name(node) for node in nodes))
            for node in nodes:
                node.meta["delegation_tag"] = name
            tags[name] = DelegationSpec(TensorRTBackend.__name__, self._specs(found))
            partitions.append(found)
        tag_constant_data(exported_program)
        self.report = _report(exported_program, partitions, support)
        _log_report(self.report)
        return PartitionResult(tagged_exported_program=exported_program, partition_tags=tags)

    def ops_to_not_decompose(
        self, ep: ExportedProgram
    ) -> tuple[list[OpOverload], Callable[[Node], bool] | None]:
        """The operators of this program that TensorRT takes whole, every one of their calls."""
        return kept_whole(ep.graph, refusal_for(self._builder), self._excluded), None

    def transform_for_pre_decomposition(self, exported_program: ExportedProgram) -> ExportedProgram:
        """The program with dictionaries of its own for its weights and constants.

        Lowering removes from them what a delegate consumes (``_unsafe_adjust_original_program``),
        and decomposition shares them with the caller's program, which could then be lowered only
        once.
        """
        own = copy.copy(exported_program)
        own._state_dict = dict(exported_program.state_dict)
        own._constants = dict(exported_program.constants)
        return own

    def _specs(self, partition: Partition) -> PartitionSpecs:
        device = self._device(partition) if callable(self._device) else self._device
        plan = PartitionPlan(partition.name, self._builder, parse_device(device), self._options)
        return PartitionSpecs(self._compile_specs, plan)

    def _checked_device(self, device: DeviceChoice | None) -> DeviceChoice:
        pinned = explicit_device(self._compile_specs)
        if device is not None:
            return device if callable(device) else parse_device(device)
        if pinned is None:
            return 0
        try:
            return parse_device(pinned.decode(errors="replace"))
        except OptionError:
            # Verbatim: ExecuTorch judges the spec (b"cpu" keeps tensors on the host).
            return 0

    def _worthwhile(self, groups: list[list[Node]], support: OperatorSupport) -> list[list[Node]]:
        kept = []
        for nodes in groups:
            reason = None
            if not any(must_be_delegated(node) for node in nodes):
                if not is_compute(nodes):
                    reason = "alone it only rearranges memory, which is no work for an engine"
                elif len(nodes) < self._min_block_size:
                    reason = f"its partition is smaller than min_block_size={self._min_block_size}"
            if reason is None:
                kept.append(nodes)
            else:
                support.refuse(nodes, reason)
        return kept


def _propose(program: ExportedProgram, support: OperatorSupport) -> list[list[Node]]:
    """Convex groups of supported nodes, and their nodes, in program order."""
    position = {node: index for index, node in enumerate(program.graph.nodes)}
    while True:
        proposed = CapabilityBasedPartitioner(
            program.graph_module, support, allows_single_node_partition=True
        ).propose_partitions()
        groups = [sorted(group.nodes, key=position.__getitem__) for group in proposed]
        # An engine reads sizes off its input tensors; what needs another one cannot be in it.
        lost = [node for nodes in groups for node in _without_sizes(nodes)]
        if not lost:
            return sorted(groups, key=lambda nodes: position[nodes[0]])
        support.refuse(lost, "it needs a size that no tensor input of its partition has")


def _without_sizes(nodes: list[Node]) -> list[Node]:
    """The nodes of a partition that take a size which none of its input tensors shows."""
    inside = set(nodes)
    outside = {source for node in nodes for source in node.all_input_nodes} - inside
    shown = frozenset().union(*(tensor_symbols(source.meta.get("val")) for source in outside))
    return [
        node
        for node in nodes
        if not all(size_symbols(source.meta.get("val")) <= shown for source in node.all_input_nodes)
    ]


def _report(
    program: ExportedProgram, partitions: list[Partition], support: OperatorSupport
) -> PartitionReport:
    left_out = tuple(
        (node.name, qualified_name(node), support.reasons[node])
        for node in program.graph.nodes
        if node in support.reasons
    )
    return PartitionReport(tuple(partitions), left_out)


def _log_report(report: PartitionReport) -> None:
    for name, operator, reason in report.left_out:
        _log.debug("%s (%s) stays out: %s", name, operator, reason)
    if report.partitions:
        _log.info(
            "%d partition(s) for TensorRT with %d operators; %d stay out",
            len(report.partitions),
            sum(len(partition.operators) for partition in report.partitions),
            len(report.left_out),
        )
        return
    reasons = dict.fromkeys(f"{op}: {why}" for _, op, why in report.left_out)
    _log.warning(
        "nothing in this program goes to TensorRT, and the .pte will hold no engine. %s",
        "; ".join(list(reasons)[:5]) or "The program calls no operator",
    )
