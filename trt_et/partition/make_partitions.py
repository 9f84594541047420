"""Makes the partitions of a program, and reports why the rest of it stays out."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from torch._ops import OpOverload
from torch.fx import Node

from trt_et.engine_program.edge_to_aten import aten_target
from trt_et.graph.fragment import SupportCheck
from trt_et.ops.quantize import is_quantization
from trt_et.partition.analysis import Analysis
from trt_et.partition.float_products import warn_float_products
from trt_et.partition.grouping import group_nodes
from trt_et.partition.make_report import make_report
from trt_et.partition.node_choice import NodeChoice
from trt_et.partition.operator_support import OperatorSupport
from trt_et.partition.report import Partition, PartitionReport
from trt_et.precision.plan import Float32Plan


def make_partitions(
    analysis: Analysis,
    check: SupportCheck,
    excluded: NodeChoice,
    min_block_size: int,
    without_int8: Collection[OpOverload] = (),
    *,
    float32: Float32Plan | None = None,
) -> tuple[list[tuple[Partition, list[Node]]], PartitionReport]:
    """Return the partitions of an Edge program with their nodes, in program order, and the report.

    The builder's library has no int8 kernels for ``without_int8``.
    """
    supports = [
        OperatorSupport(
            subgraph,
            check if float32 is None else float32.check,
            excluded,
            constants=analysis.constants_of(subgraph),
        )
        for subgraph in analysis.subgraphs
    ]
    groups = [
        (support, nodes)
        for support in supports
        for nodes in group_nodes(support, min_block_size, analysis.constants)
    ]
    position = {
        node: (*subgraph.order, index)
        for subgraph in analysis.subgraphs
        for index, node in enumerate(subgraph.graph.nodes)
    }
    groups.sort(key=lambda group: position[group[1][0]])
    kept = [
        float32.keep(support.fragment(nodes), {node: support.equivalent[node] for node in nodes})
        if float32 is not None
        else {}
        for support, nodes in groups
    ]
    delegated = dict.fromkeys(node for _, nodes in groups for node in nodes)
    warn_float_products(delegated, without_int8)
    _register_out_variants(supports, delegated)
    report = make_report(supports, groups, kept)
    return list(zip(report.partitions, (nodes for _, nodes in groups), strict=True)), report


def _register_out_variants(
    supports: Iterable[OperatorSupport], delegated: Collection[Node]
) -> None:
    """Let ExecuTorch emit the quantize operators that stay on the CPU.

    Without this import, it ends with "Missing out variants". Runtimes have their kernels.
    """
    nodes = (node for support in supports for node in support.subgraph.graph.nodes)
    if any(is_quantization(aten_target(node)) for node in nodes if node not in delegated):
        import executorch.kernels.quantized  # noqa: F401
