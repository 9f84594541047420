"""Draws the partitions of a program, before anything is built."""

from __future__ import annotations

import math
import operator
from collections import Counter
from collections.abc import Sequence
from graphlib import TopologicalSorter

import torch
from torch.fx import Node

from trt_et.engine_program.edge_to_aten import qualified_name
from trt_et.graph.modules import source_of
from trt_et.graph.symbolic_shapes import UnboundedDimension, shape_range
from trt_et.inspection.page import CPU, ENDS, Box, Picture, box_lines
from trt_et.inspection.tables import Table, size_text
from trt_et.partition.analysis import Analysis
from trt_et.partition.report import Partition, PartitionReport


def draw_partitions(
    analysis: Analysis,
    parts: Sequence[tuple[Partition, list[Node]]],
    report: PartitionReport,
) -> Picture:
    """Draw the main graph of an Edge program: inputs, partitions, calls on the CPU, outputs."""
    reasons = {name: reason for name, _, reason in report.not_delegated}
    boxes: dict[object, Box] = {}
    owners: dict[Node, object] = {}
    for part, nodes in parts:
        boxes[part.name] = _partition_box(part)
        owners |= dict.fromkeys(nodes, part.name)
    graph = analysis.program.graph
    for node in graph.nodes:
        if node in owners or node.name in analysis.constants or node.op in ("get_attr", "output"):
            continue
        if node.target is operator.getitem and node.args[0] in owners:
            owners[node] = owners[node.args[0]]
            continue
        boxes[node.name] = (
            _input_box(node) if node.op == "placeholder" else _call_box(node, reasons)
        )
        owners[node] = node.name
    arrows: dict[tuple[object, object], dict[str, int]] = {}
    for node, owner in owners.items():
        for source in node.all_input_nodes:
            if source in owners and owners[source] != owner:
                arrows.setdefault((owners[source], owner), {}).update(_tensor(source))
    for part, _ in parts:
        caller = part.subgraph.partition("/")[0]
        if caller in boxes:
            arrows.setdefault((caller, part.name), {})[f"branch {part.subgraph}"] = 0
    for index, node in enumerate(graph.output_node().all_input_nodes):
        if node in owners:
            end = f"output {index}"
            boxes[end] = Box(ENDS, end, tuple(_tensor(node, named=False)))
            arrows[owners[node], end] = _tensor(node)
    return _picture(boxes, arrows)


def _picture(
    boxes: dict[object, Box], arrows: dict[tuple[object, object], dict[str, int]]
) -> Picture:
    """Return the picture, every box after the boxes that it reads."""
    sources: dict[object, list[object]] = {key: [] for key in boxes}
    for start, end in arrows:
        sources[end].append(start)
    order = list(TopologicalSorter(sources).static_order())
    at = {key: index for index, key in enumerate(order)}
    ends = sorted(arrows, key=lambda pair: (at[pair[0]], at[pair[1]]))
    return Picture(
        boxes=[boxes[key] for key in order],
        arrows={(at[start], at[end]): arrows[start, end] for start, end in ends},
    )


def _partition_box(part: Partition) -> Box:
    counts = Counter(part.operators)
    facts = [
        ("operators", str(len(part.operators))),
        ("weights", size_text(part.constant_bytes)),
        ("inputs", size_text(sum(tensor.nbytes for tensor in part.inputs))),
        ("outputs", size_text(sum(tensor.nbytes for tensor in part.outputs))),
        ("modules", ", ".join(part.modules)),
    ]
    calls = tuple((name, str(count)) for name, count in counts.most_common())
    tables = (
        Table("Engine", ("", ""), tuple(row for row in facts if row[1])),
        Table("Operators", ("operator", "calls"), calls, ["calls"]),
    )
    lines = (*box_lines(counts), f"{size_text(part.constant_bytes)} of weights")
    return Box("TensorRT engine", part.name, lines, tables)


def _call_box(node: Node, reasons: dict[str, str]) -> Box:
    name = qualified_name(node)
    facts = [("operator", name), ("node", node.name), ("reason", reasons.get(node.name, ""))]
    facts.append(("source", source_of(node)))
    table = Table("On the CPU", ("", ""), tuple(row for row in facts if row[1]))
    return Box(CPU, box_lines({name: 1})[0], facts=(table,))


def _input_box(node: Node) -> Box:
    return Box(ENDS, node.name, tuple(_tensor(node, named=False)))


def _tensor(node: Node, *, named: bool = True) -> dict[str, int]:
    """Describe the (largest) tensor that a node makes, with its bytes."""
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor):
        return {f"{node.name}: a number" if isinstance(value, torch.SymInt) else node.name: 0}
    dtype = str(value.dtype).removeprefix("torch.")
    try:
        sizes = [shape_range(size)[2] for size in value.shape]
    except UnboundedDimension:
        text = f"{dtype} {[str(size) for size in value.shape]}, no upper bound"
        return {f"{node.name}: {text}" if named else text: 0}
    nbytes = math.prod(sizes) * value.element_size()
    text = f"{dtype} {sizes}, {size_text(nbytes)}"
    return {f"{node.name}: {text}" if named else text: nbytes}
