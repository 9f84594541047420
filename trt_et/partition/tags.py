"""ExecuTorch's delegation tags on what partitions need beside their operators."""

from __future__ import annotations

from executorch.exir.backend.utils import tag_constant_data
from torch.export import ExportedProgram
from torch.fx import Node

from trt_et.graph.constants import input_names
from trt_et.graph.subgraphs import subgraphs

__all__ = ["clear_tags", "is_in_a_list_of", "tag_constants"]


def clear_tags(program: ExportedProgram) -> None:
    """Drop what an earlier partitioner left in branches.

    ExecuTorch takes tags off the program's own graph only, and a tag of ours that stays on the
    results of a delegate in a branch would be taken for a new one.
    """
    for subgraph in subgraphs(program.graph_module):
        for node in subgraph.graph.nodes:
            node.meta.pop("delegation_tag", None)


def tag_constants(program: ExportedProgram) -> None:
    """Give weights the tag of the partition that uses them; never a buffer that changes.

    A weight that nothing uses goes with the first partition, whose engine leaves it out: otherwise
    the program would carry it along.
    """
    tag_constant_data(program)
    signature = program.graph_signature
    mutated = set(signature.buffers_to_mutate.values())
    tags = [n.meta["delegation_tag"] for n in program.graph.nodes if "delegation_tag" in n.meta]
    inputs = input_names(program)
    for node in program.graph.nodes:
        if node.op == "placeholder" and not node.users and node.name not in inputs and tags:
            node.meta["delegation_tag"] = tags[0]
        _let_lists_keep_it(node)
        # What counts as mutated has changed between releases of tag_constant_data.
        if node.op == "placeholder" and signature.inputs_to_buffers.get(node.name) in mutated:
            node.meta.pop("delegation_tag", None)


def _let_lists_keep_it(weight: Node) -> None:
    """Put the users that have a weight in a list before its other users.

    ExecuTorch leaves the original to the first user, and gives a copy to each of the others.
    """
    for user in list(weight.users):
        if not is_in_a_list_of(user, weight):
            weight.users[user] = weight.users.pop(user)


def is_in_a_list_of(user: Node, argument: Node) -> bool:
    """Whether a node has another in a list among its arguments."""
    lists = [each for each in (*user.args, *user.kwargs.values()) if isinstance(each, list | tuple)]
    return any(argument is element for each in lists for element in each)
