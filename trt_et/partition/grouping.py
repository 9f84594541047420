"""From supported nodes to partitions: convex, whole, and worth an engine."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Final

from torch.export import ExportedProgram
from torch.fx import Graph, Node

from trt_et.graph.constants import input_names
from trt_et.graph.symbolic_shapes import size_symbols, tensor_symbols
from trt_et.lowering.edge_to_aten import aten_target, qualified_name
from trt_et.ops.quantize import is_quantization
from trt_et.partition.convex_groups import connected, convex_groups
from trt_et.partition.internal_sizes import inner_sizes, is_size, misplaced_sizes
from trt_et.partition.operator_support import OperatorSupport
from trt_et.partition.ops_to_preserve import must_be_delegated
from trt_et.partition.tags import is_in_a_list_of

__all__ = ["cut_points", "group_nodes", "is_worth_an_engine"]

# Nodes that only rename, rearrange or quantize: alone, they are no work for an engine.
_VIEWS: Final = frozenset(
    {
        "aten::alias_copy",
        "aten::clone",
        "aten::detach_copy",
        "aten::expand_copy",
        "aten::permute_copy",
        "aten::reshape",
        "aten::select_copy",
        "aten::slice_copy",
        "aten::split_copy",
        "aten::split_with_sizes_copy",
        "aten::squeeze_copy",
        "aten::t_copy",
        "aten::transpose_copy",
        "aten::unsqueeze_copy",
        "aten::view_copy",
        "dim_order_ops::_clone_dim_order",
        "quantized_decomposed::dequantize_per_channel",
        "quantized_decomposed::dequantize_per_tensor",
        "quantized_decomposed::quantize_per_channel",
        "quantized_decomposed::quantize_per_tensor",
    }
)


def group_nodes(
    program: ExportedProgram, support: OperatorSupport, min_block_size: int
) -> list[list[Node]]:
    """Convex groups of supported nodes of one graph, and their nodes, in program order.

    Args:
        program: Edge dialect; not changed.
        support: What an engine can hold of one of its graphs; what is dropped here is refused
            there, with the reason.
        min_block_size: Smallest number of nodes worth an engine.
    """
    module = support.subgraph.module
    position = {node: index for index, node in enumerate(module.graph.nodes)}
    while True:
        groups = _groups(module.graph, support)
        # An engine reads sizes off its input tensors; what needs another one cannot be in it.
        lost = [node for nodes in groups for node in _without_sizes(nodes)]
        support.refuse(lost, "it needs a size that no tensor input of its partition has")
        alone = [node for nodes in groups for node in _quantizing_alone(nodes, support)]
        support.refuse(alone, "nothing that it quantizes or dequantizes for is in an engine")
        known = set(alone)
        idle = [node for nodes in groups for node in _islands(nodes) if node not in known]
        support.refuse(idle, "alone it only rearranges or quantizes, no work for an engine")
        apart = [node for nodes in groups for node in support.cut_off_from_weights(nodes)]
        support.refuse(apart, "its weight, which TensorRT must know, is not in its engine alone")
        lost += alone + idle + apart
        if module is program.graph_module:
            torn = _in_lists_of_several_groups(program, groups)
            support.refuse(
                torn, "a weight in its list of tensors is in another such list elsewhere"
            )
            lost += torn
        if not lost:
            break
    worthy = [nodes for nodes in groups if is_worth_an_engine(nodes, support, min_block_size)]
    support.accept(node for nodes in worthy for node in nodes if is_size(node))
    return sorted([*worthy, *support.prebuilt.values()], key=lambda nodes: position[nodes[0]])


def cut_points(program: ExportedProgram, support: OperatorSupport, nodes: list[Node]) -> list[int]:
    """Where a group of :func:`group_nodes` can be cut in two, each of which is a group.

    Args:
        program: As for :func:`group_nodes`.
        support: Likewise.
        nodes: The group's nodes, in program order.
    """
    return [at for at in range(1, len(nodes)) if _are_groups(program, support, nodes, at)]


def _are_groups(
    program: ExportedProgram, support: OperatorSupport, nodes: list[Node], at: int
) -> bool:
    if nodes[at].target is operator.getitem:
        return False  # It belongs to the node whose result it picks.
    halves = [nodes[:at], nodes[at:]]
    is_torn = support.subgraph.module is program.graph_module and _in_lists_of_several_groups(
        program, halves
    )
    return not (
        is_torn
        or misplaced_sizes(halves)
        or any(
            _without_sizes(half)
            or _quantizing_alone(half, support)
            or _islands(half)
            or support.cut_off_from_weights(half)
            for half in halves
        )
    )


def _groups(graph: Graph, support: OperatorSupport) -> list[list[Node]]:
    """Convex groups of supported nodes, and of the sizes that they compute themselves."""
    sizes = inner_sizes(graph, support.is_supported)

    def may_join(node: Node) -> bool:
        return support.is_supported(node) or node in sizes

    while True:
        groups = convex_groups(graph, may_join)
        misplaced = misplaced_sizes(groups)
        if not misplaced:
            return groups
        sizes.difference_update(misplaced)


def _in_lists_of_several_groups(program: ExportedProgram, groups: list[list[Node]]) -> list[Node]:
    """The nodes of groups that have a weight in a list which ExecuTorch cannot give a copy.

    It copies a weight for each partition, but lists (``cat``, operands of control flow) keep the
    original (``duplicate_constant_node``): all lists that hold a weight must be in one partition,
    or all outside.
    """
    group_of = {node: index for index, nodes in enumerate(groups) for node in nodes}
    inputs = input_names(program)
    torn = []
    for weight in program.graph.nodes:
        if weight.op == "placeholder" and weight.name not in inputs:
            users = [user for user in weight.users if is_in_a_list_of(user, weight)]
            if len({group_of.get(user) for user in users}) > 1:
                torn += [user for user in users if user in group_of]
    return torn


def _without_sizes(nodes: list[Node]) -> list[Node]:
    """The nodes of a partition that take a size which none of its input tensors shows."""
    inside = set(nodes)
    outside = {source for node in nodes for source in node.all_input_nodes} - inside
    shown = frozenset().union(*(tensor_symbols(source.meta.get("val")) for source in outside))
    return [
        node
        for node in nodes
        if not all(
            source in inside or size_symbols(source.meta.get("val")) <= shown
            for source in node.all_input_nodes
        )
    ]


def _quantizing_alone(nodes: list[Node], support: OperatorSupport) -> list[Node]:
    """The quantize and dequantize nodes that meet nothing else of their partition.

    The weight of an operator that stays out, say: an engine would return it, in float.
    """
    inside = set(nodes)
    return [
        node
        for node in nodes
        if inside.isdisjoint(node.users)
        and not must_be_delegated(node)
        and (
            support.is_cast_of_weight(node)
            or (is_quantization(aten_target(node)) and inside.isdisjoint(node.all_input_nodes))
        )
    ]


def _islands(nodes: list[Node]) -> list[Node]:
    """The nodes whose part of a partition computes nothing."""
    return [
        node
        for part in connected(nodes)
        if not _is_compute(part)
        for node in part
        if not is_size(node)
    ]


def is_worth_an_engine(nodes: list[Node], support: OperatorSupport, min_block_size: int) -> bool:
    """Whether a group is large enough; the nodes of one that is not are refused."""
    if any(must_be_delegated(node) for node in nodes):
        return True
    tensors = [node for node in nodes if not is_size(node)]
    if len(tensors) < min_block_size:
        support.refuse(tensors, f"its partition is smaller than min_block_size={min_block_size}")
        return False
    return True


def _is_compute(nodes: Iterable[Node]) -> bool:
    """Whether the nodes do more than rename, rearrange and quantize tensors."""
    return any(
        node.target is not operator.getitem
        and not is_size(node)
        and qualified_name(node).rpartition(".")[0] not in _VIEWS
        for node in nodes
    )
