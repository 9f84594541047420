"""Makes the partitions of a program, and reports why the rest of it stays out."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

import torch
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.fx import Node

from trt_et.graph.constants import known_constants
from trt_et.graph.fragment import SupportCheck
from trt_et.graph.subgraphs import in_program_order, subgraphs
from trt_et.lowering.edge_to_aten import aten_target
from trt_et.ops.quantize import is_quantization
from trt_et.partition.float32_plan import Float32Plan
from trt_et.partition.float_products import warn_float_products
from trt_et.partition.grouping import group_nodes
from trt_et.partition.make_report import describe_partition, make_report
from trt_et.partition.node_choice import NodeChoice
from trt_et.partition.operator_support import OperatorSupport
from trt_et.partition.picture import draw_partitions
from trt_et.partition.report import Partition, PartitionReport


def make_partitions(
    program: ExportedProgram,
    check: SupportCheck,
    excluded: NodeChoice,
    min_block_size: int,
    weights: Mapping[str, torch.Tensor],
    without_int8: Collection[OpOverload] = (),
    *,
    float32: Float32Plan | None = None,
    draw: bool = False,
) -> tuple[list[tuple[Partition, list[Node]]], PartitionReport]:
    """Return the partitions of an Edge program with their nodes, in program order, and the report.

    ``weights`` has the program's weights, by their names in its ``state_dict``: ExecuTorch hands
    the partitioner a program without their values. The builder's library has no int8 kernels for
    ``without_int8``. With ``draw``, the report gets a picture.
    """
    supports = [
        OperatorSupport(
            subgraph,
            check if float32 is None else float32.check,
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
    if float32 is not None:
        by_path = {support.subgraph.path: support for support in supports}
        parts = [
            float32.apply(part, nodes, by_path[part.subgraph])
            for part, (_, nodes) in zip(parts, groups, strict=True)
        ]
    delegated = dict.fromkeys(node for _, nodes in groups for node in nodes)
    warn_float_products(delegated, without_int8)
    _register_out_variants(supports, delegated)
    made = [(part, nodes) for part, (_, nodes) in zip(parts, groups, strict=True)]
    report = make_report(parts, supports)
    if draw:
        reasons = {node: why for support in supports for node, why in support.reasons.items()}
        report = replace(report, picture=draw_partitions(program, made, reasons))
    return made, report


def _register_out_variants(
    supports: Iterable[OperatorSupport], delegated: Collection[Node]
) -> None:
    """Let ExecuTorch emit the quantize operators that stay on the CPU.

    Without this import, it ends with "Missing out variants". Runtimes have their kernels.
    """
    nodes = (node for support in supports for node in support.subgraph.graph.nodes)
    if any(is_quantization(aten_target(node)) for node in nodes if node not in delegated):
        import executorch.kernels.quantized  # noqa: F401
