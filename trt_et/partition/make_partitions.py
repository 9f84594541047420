"""Makes the partitions of a program, and reports why the rest of it stays out."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from trt_et.graph.constants import known_constants
from trt_et.graph.fragment import SupportCheck
from trt_et.graph.subgraphs import in_program_order, subgraphs
from trt_et.partition.excluded_ops import ExcludedOps
from trt_et.partition.float_products import warn_float_products
from trt_et.partition.grouping import group_nodes
from trt_et.partition.make_report import describe_partition, make_report
from trt_et.partition.operator_support import OperatorSupport
from trt_et.partition.report import Partition, PartitionReport

__all__ = ["make_partitions"]


def make_partitions(
    program: ExportedProgram,
    check: SupportCheck,
    excluded: ExcludedOps,
    min_block_size: int,
    weights: Mapping[str, torch.Tensor],
) -> tuple[list[tuple[Partition, list[Node]]], PartitionReport]:
    """Return the partitions of an Edge program with their nodes, in program order, and the report.

    Args:
        program: Not changed.
        check: Whether the builder supports calls.
        excluded: The nodes that the caller leaves to the CPU.
        min_block_size: Smallest number of operators worth an engine.
        weights: The program's weights, by their names in its ``state_dict``; ExecuTorch hands the
            partitioner a program without their values.
    """
    supports = [
        OperatorSupport(
            subgraph,
            check,
            excluded,
            constants={} if subgraph.path else known_constants(program, weights),
        )
        for subgraph in subgraphs(program.graph_module)
    ]
    groups = in_program_order(
        (support.subgraph, nodes)
        for support in supports
        for nodes in group_nodes(program, support, min_block_size)
    )
    parts = [
        describe_partition(program, subgraph, index, nodes)
        for index, (subgraph, nodes) in enumerate(groups)
    ]
    warn_float_products(node for _, nodes in groups for node in nodes)
    made = [(part, nodes) for part, (_, nodes) in zip(parts, groups, strict=True)]
    return made, make_report(parts, supports)
