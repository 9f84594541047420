"""Groups supported nodes into partitions: convex, complete, and worth an engine."""

from __future__ import annotations

import logging
import operator
from collections.abc import Collection, Iterable
from typing import Final

from torch.fx import Graph, Node

from trt_et.engine_program.edge_to_aten import aten_target, qualified_name
from trt_et.graph.operators import VIEWS, names
from trt_et.ops.quantize import is_quantization, is_quantize_layer
from trt_et.partition.convex_groups import connected, convex_groups
from trt_et.partition.internal_sizes import (
    inner_sizes,
    is_size,
    misplaced_sizes,
    nodes_without_sizes,
)
from trt_et.partition.operator_support import OperatorSupport
from trt_et.partition.ops_to_preserve import must_be_delegated
from trt_et.partition.tags import is_in_a_list_of

_COMBINATION: Final = 2
_log = logging.getLogger(__name__)

# Nodes that only rename, rearrange or quantize: an engine of only these does no work.
_VIEWS: Final = names(VIEWS) | {"dim_order_ops::_clone_dim_order"}


def group_nodes(
    support: OperatorSupport, min_block_size: int, constants: Collection[str]
) -> list[list[Node]]:
    """Group the supported nodes of one graph; the nodes of a group are in program order.

    Args:
        support: The supported nodes of one graph of an Edge program; nodes that fit no partition
            are refused there with the reason.
        min_block_size: Smallest number of nodes worth an engine.
        constants: The names of the program's weights and constants that nothing mutates.
    """
    graph = support.subgraph.graph
    while True:
        groups = _groups(graph, support)
        # An engine reads sizes off its input tensors and gets no other sizes.
        lost = [node for nodes in groups for node in nodes_without_sizes(nodes)]
        apart = [n for n in lost if must_be_delegated(n) and not nodes_without_sizes([n])]
        support.refuse(
            (node for node in lost if node not in apart),
            "it needs a size that no tensor input of its partition has",
        )
        if len(apart) == len(lost):
            for node in apart:
                support.set_apart(node)
        alone = [node for nodes in groups for node in _quantizing_alone(nodes, support)]
        support.refuse(alone, "no operator of an engine uses its quantized or dequantized tensor")
        known = set(alone)
        idle = [node for nodes in groups for node in _islands(nodes) if node not in known]
        support.refuse(idle, "its partition would only reshape or quantize")
        fixed = [node for nodes in groups if _is_fixed(nodes, support) for node in nodes]
        support.refuse(fixed, "its partition would compute with constants alone")
        cut_off = [node for nodes in groups for node in support.cut_off_from_weights(nodes)]
        support.refuse(cut_off, "its weight is also used outside this engine")
        lost += alone + idle + fixed + cut_off
        if not support.subgraph.path:
            torn = _in_lists_of_several_groups(graph, constants, groups)
            support.refuse(
                torn,
                "it shares a weight in a tensor list (cat, for example) with another partition",
            )
            lost += torn
        if lost:
            continue
        worthy = [nodes for nodes in groups if _is_worth_an_engine(nodes, support, min_block_size)]
        left_out = [_leave_out_unconvertible(nodes, support) for nodes in worthy]
        if not any(left_out):
            break
    support.accept(node for nodes in worthy for node in nodes if is_size(node))
    return [*worthy, *support.alone.values()]


def _leave_out_unconvertible(nodes: list[Node], support: OperatorSupport) -> bool:
    """Refuse nodes that cannot be converted with their partition; return if there were any."""
    if sum(not is_size(node) for node in nodes) < _COMBINATION:
        return False  # Each node was converted on its own before.
    unsupported = support.unsupported_in(nodes)
    if unsupported is None:
        return False
    named, reason = unsupported
    for node in named:
        name, alone = support.subgraph.name_of(node), must_be_delegated(node)
        if alone:
            support.set_apart(node)
        else:
            support.refuse([node], f"it cannot be converted with its partition: {reason}")
        _log.warning(
            "%s (%s) %s, because TensorRT cannot convert it together with the rest of its "
            "partition: %s",
            name,
            qualified_name(node),
            "gets a separate engine" if alone else "stays on the CPU",
            reason,
        )
    return True


def _groups(graph: Graph, support: OperatorSupport) -> list[list[Node]]:
    """Group supported nodes and the sizes that only they use."""
    sizes = inner_sizes(graph, support.is_supported)

    def may_join(node: Node) -> bool:
        return support.is_supported(node) or node in sizes

    while True:
        groups = convex_groups(graph, may_join)
        misplaced = misplaced_sizes(groups)
        if not misplaced:
            return groups
        sizes.difference_update(misplaced)


def _in_lists_of_several_groups(
    graph: Graph, constants: Collection[str], groups: list[list[Node]]
) -> list[Node]:
    """Return the nodes that take a weight in a tensor list, if several partitions do.

    ExecuTorch copies a weight for each partition, but tensor lists (``cat``, operands of control
    flow) keep the original (``duplicate_constant_node``). All lists that hold a weight must be in
    one partition, or all outside.
    """
    group_of = {node: index for index, nodes in enumerate(groups) for node in nodes}
    torn = []
    for weight in graph.find_nodes(op="placeholder"):
        if weight.name in constants:
            users = [user for user in weight.users if is_in_a_list_of(user, weight)]
            if len({group_of.get(user) for user in users}) > 1:
                torn += [user for user in users if user in group_of]
    return torn


def _quantizing_alone(nodes: list[Node], support: OperatorSupport) -> list[Node]:
    """Return the quantize and dequantize nodes without a neighbour in their partition.

    For example, the weight of an operator on the CPU: an engine would return it in float.
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
    """Return the nodes of the parts of a partition that compute nothing."""
    return [
        node
        for part in connected(nodes)
        if not _is_compute(part)
        for node in part
        if not is_size(node)
    ]


def _is_fixed(nodes: list[Node], support: OperatorSupport) -> bool:
    """Return whether a partition would have no input: a number that is cast for the CPU."""
    return (
        support.takes_constants_only(nodes)
        and not any(map(must_be_delegated, nodes))
        and all(support.has_cpu_kernel(node) for node in nodes if not is_size(node))
    )


def _is_worth_an_engine(nodes: list[Node], support: OperatorSupport, min_block_size: int) -> bool:
    """Return whether a group is large enough; refuse its nodes if not."""
    if any(must_be_delegated(node) for node in nodes):
        return True
    tensors = [node for node in nodes if not is_size(node)]
    if len(tensors) < min_block_size and all(map(support.has_cpu_kernel, tensors)):
        support.refuse(tensors, f"its partition is smaller than min_block_size={min_block_size}")
        return False
    return True


def _is_compute(nodes: Iterable[Node]) -> bool:
    """Return whether the nodes do more than rename, rearrange and quantize tensors."""
    return any(
        node.target is not operator.getitem
        and not is_size(node)
        and not is_quantize_layer(aten_target(node))
        and _name(node) not in _VIEWS
        for node in nodes
    )


def _name(node: Node) -> str:
    """Return ``permute`` for the Edge dialect's ``aten::permute_copy.default``."""
    name = qualified_name(node).rpartition(".")[0]
    return name.removeprefix("aten::").removesuffix("_copy")
