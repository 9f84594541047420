"""Which partitions a program gets, and why the rest of it stays out."""

from __future__ import annotations

from torch.export import ExportedProgram
from torch.fx import Node

from trt_et.graph.constants import constant_names
from trt_et.graph.subgraphs import in_program_order, subgraphs
from trt_et.partition.crash_search import CrashSearch
from trt_et.partition.excluded_ops import ExcludedOps
from trt_et.partition.float_products import warn_float_products
from trt_et.partition.grouping import group_nodes
from trt_et.partition.operator_support import OperatorSupport, SupportCheck
from trt_et.partition.report import Partition, PartitionReport, describe_partition, make_report

__all__ = ["plan_partitions"]


def plan_partitions(
    program: ExportedProgram,
    check: SupportCheck,
    excluded: ExcludedOps,
    min_block_size: int,
    search: CrashSearch | None = None,
) -> tuple[list[tuple[Partition, list[Node]]], PartitionReport]:
    """The partitions of an Edge program with their nodes, in program order, and the report.

    Args:
        program: Not changed.
        check: Whether the builder supports a node; asked once for each.
        excluded: What the caller leaves to the CPU.
        min_block_size: Smallest number of operators worth an engine.
        search: Builds each partition on trial, and cuts it where that crashes.
    """
    supports = [
        OperatorSupport(
            subgraph,
            check,
            excluded,
            constants=() if subgraph.path else constant_names(program),
        )
        for subgraph in subgraphs(program.graph_module)
    ]
    groups = in_program_order(
        (support.subgraph, part)
        for support in supports
        for nodes in group_nodes(program, support, min_block_size)
        for part in (search.parts(program, support, nodes) if search is not None else [nodes])
    )
    parts = [
        describe_partition(program, subgraph, index, nodes)
        for index, (subgraph, nodes) in enumerate(groups)
    ]
    warn_float_products(node for _, nodes in groups for node in nodes)
    planned = [(part, nodes) for part, (_, nodes) in zip(parts, groups, strict=True)]
    return planned, make_report(parts, supports)
