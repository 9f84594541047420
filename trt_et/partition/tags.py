"""Sets ExecuTorch's delegation tags on the nodes of partitions and their constants."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from executorch.exir.backend.utils import tag_constant_data
from torch.fx import Node

from trt_et.partition.analysis import Analysis


def tag_partitions(analysis: Analysis, partitions: Mapping[str, Iterable[Node]]) -> None:
    """Tag the nodes of each partition, by its name, and the weights that they use."""
    clear_tags(analysis)
    for name, nodes in partitions.items():
        for node in nodes:
            node.meta["delegation_tag"] = name
    _tag_constants(analysis)


def clear_tags(analysis: Analysis) -> None:
    """Remove the tags that an earlier partitioner left in branches.

    ExecuTorch removes tags from the program's main graph only. An old tag on the results of a
    delegate in a branch would count as a new one.
    """
    for subgraph in analysis.subgraphs:
        for node in subgraph.graph.nodes:
            node.meta.pop("delegation_tag", None)


def _tag_constants(analysis: Analysis) -> None:
    """Tag weights, but no mutable buffer; an unused one goes into the first engine's partition."""
    program = analysis.program
    tag_constant_data(program)
    signature = program.graph_signature
    mutated = set(signature.buffers_to_mutate.values())
    tags = [n.meta["delegation_tag"] for n in program.graph.nodes if "delegation_tag" in n.meta]
    for node in program.graph.find_nodes(op="placeholder"):
        if not node.users and node.name not in analysis.inputs and tags:
            node.meta["delegation_tag"] = tags[0]
        _let_lists_keep_it(node)
        # Releases of tag_constant_data differ in which buffers are mutable.
        if signature.inputs_to_buffers.get(node.name) in mutated:
            node.meta.pop("delegation_tag", None)


def _let_lists_keep_it(weight: Node) -> None:
    """Move the users that take a weight in a list before its other users.

    ExecuTorch gives the original to the first user and a copy to each of the others.
    """
    for user in list(weight.users):
        if not is_in_a_list_of(user, weight):
            weight.users[user] = weight.users.pop(user)


def is_in_a_list_of(user: Node, argument: Node) -> bool:
    """Return whether a node takes another in a list."""
    lists = [each for each in (*user.args, *user.kwargs.values()) if isinstance(each, list | tuple)]
    return any(argument is element for each in lists for element in each)
