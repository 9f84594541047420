"""Plans which operators of each partition keep float32 (the option ``precision``)."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from dataclasses import replace

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from trt_et.graph.constants import known_constants
from trt_et.graph.fragment import constants_among, fragment_of_group
from trt_et.graph.subgraphs import Subgraph, subgraphs
from trt_et.lowering.edge_to_aten import qualified_name, to_aten
from trt_et.lowering.float32_rules import attention_masks, float32_reasons
from trt_et.partition.excluded_ops import ExcludedOps, exported_name
from trt_et.partition.report import Partition

__all__ = ["chosen_for_float32", "with_float32_plan"]


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


def with_float32_plan(
    program: ExportedProgram,
    parts: Iterable[tuple[Partition, list[Node]]],
    weights: Mapping[str, torch.Tensor],
    chosen: Mapping[tuple[str, str], str],
    precision: torch.dtype,
) -> list[tuple[Partition, list[Node]]]:
    """Return the partitions with ``Partition.float32``.

    Args:
        program: Edge dialect.
        parts: Its partitions with their nodes.
        weights: The values of its weights, by name.
        chosen: See ``chosen_for_float32``.
        precision: What the other calls compute in.
    """
    graphs = {
        subgraph.path: (subgraph, to_aten(subgraph.graph).nodes)
        for subgraph in subgraphs(program.graph_module)
    }
    constants = known_constants(program, weights)
    return [
        (
            replace(
                part, float32=_plan(*graphs[part.subgraph], nodes, constants, chosen, precision)
            ),
            nodes,
        )
        for part, nodes in parts
    ]


def _plan(
    subgraph: Subgraph,
    equivalent: Mapping[Node, Node],
    nodes: list[Node],
    constants: Mapping[str, torch.Tensor | None],
    chosen: Mapping[tuple[str, str], str],
    precision: torch.dtype,
) -> tuple[tuple[str, str, str], ...]:
    known = {} if subgraph.path else constants_among(equivalent.values(), constants)
    fragment = fragment_of_group([equivalent[node] for node in nodes], known)
    given = {
        equivalent[node]: chosen[subgraph.path, node.name]
        for node in nodes
        if (subgraph.path, node.name) in chosen
    }
    reasons = float32_reasons(
        fragment.calls, fragment.outputs, fragment.constants, precision, given
    )
    return tuple(
        (subgraph.name_of(node), qualified_name(node), reasons[equivalent[node]])
        for node in nodes
        if equivalent[node] in reasons and node.target is not operator.getitem
    )
