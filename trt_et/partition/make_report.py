"""Describes partitions and makes the report of a program."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping, Sequence

import torch
from torch.fx import Node

from trt_et.engine_program.edge_to_aten import qualified_name
from trt_et.graph.modules import module_of, source_of
from trt_et.graph.symbolic_shapes import shape_range
from trt_et.partition.missing_kernels import missing_kernel
from trt_et.partition.operator_support import COMPUTES_A_SIZE, DELEGATED, OperatorSupport
from trt_et.partition.report import BoundaryTensor, Partition, PartitionReport

_log = logging.getLogger("trt_et.partitioner")


def make_report(
    supports: Sequence[OperatorSupport],
    groups: Iterable[tuple[OperatorSupport, list[Node]]],
    float32: Iterable[Mapping[Node, str]],
) -> PartitionReport:
    """Make the report; log a summary (INFO), each reason (DEBUG), or that nothing is delegated.

    Args:
        supports: The supported nodes of each graph of the program, and the reasons of the others.
        groups: The nodes of each partition, in program order.
        float32: Those of each group that keep float32, with the reasons.
    """
    partitions = tuple(
        _described(index, *group, kept)
        for index, (group, kept) in enumerate(zip(groups, float32, strict=True))
    )
    left = [
        (support, node)
        for support in supports
        for node in support.subgraph.graph.nodes
        if node in support.reasons
    ]
    missing = {
        support.subgraph.name_of(node): why
        for support, node in left
        if support.reasons[node] not in (COMPUTES_A_SIZE, DELEGATED)
        and node.meta.get("val") is not None
        and (why := missing_kernel(node))
    }
    not_delegated = tuple(
        (
            name,
            qualified_name(node),
            f"{reason.rstrip('.')}; {missing[name]}" if name in missing else reason,
        )
        for support, node in left
        for name, reason in [(support.subgraph.name_of(node), support.reasons[node])]
    )
    sources = {support.subgraph.name_of(node): source_of(node) for support, node in left}
    report = PartitionReport(partitions, not_delegated, sources, frozenset(missing))
    for name, operator, reason in not_delegated:
        _log.debug("%s (%s) stays on the CPU: %s", name, operator, reason)
    if partitions:
        _log.info(
            "%d partition(s) for TensorRT with %d operators; %d operators stay on the CPU",
            len(partitions),
            sum(len(partition.operators) for partition in partitions),
            len(not_delegated),
        )
    else:
        reasons = {why: f"{op}: {why}" for _, op, why in reversed(not_delegated)}
        why = "; ".join([*reasons.values()][:-6:-1]) or "The program calls no operator"
        if DELEGATED in reasons:
            _log.warning("This partitioner delegates nothing; other delegates have some. %s", why)
        else:
            _log.warning(
                "No operator of this program is delegated to TensorRT; the .pte will hold no "
                "engine. %s",
                why,
            )
    return report


def _described(
    index: int, support: OperatorSupport, nodes: list[Node], float32: Mapping[Node, str]
) -> Partition:
    subgraph = support.subgraph
    inside = set(nodes)
    sources = dict.fromkeys(s for node in nodes for s in node.all_input_nodes if s not in inside)
    weights = [source for source in sources if source.name in support.constants]
    returned = [node for node in nodes if not inside.issuperset(node.users)]
    return Partition(
        index=index,
        name="_".join(["tensorrt", str(index), *filter(None, subgraph.path.split("/"))]),
        operators=tuple(qualified_name(node) for node in nodes),
        nodes=tuple(subgraph.name_of(node) for node in nodes),
        inputs=tuple(t for s in sources if s not in weights for t in _tensors(s)),
        outputs=tuple(t for node in returned for t in _tensors(node)),
        constant_bytes=sum(t.nbytes for weight in weights for t in _tensors(weight)),
        subgraph=subgraph.path,
        float32=tuple((subgraph.name_of(n), qualified_name(n), why) for n, why in float32.items()),
        modules=tuple(dict.fromkeys(filter(None, map(module_of, nodes)))),
    )


def _tensors(node: Node) -> list[BoundaryTensor]:
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor):
        return []
    shape = tuple(shape_range(size)[2] for size in value.shape)
    nbytes = math.prod(shape) * value.element_size()
    return [BoundaryTensor(node.name, value.dtype, shape, nbytes)]
