"""Reads the sizes that a partition takes as numbers off its input tensors instead.

In a program with dynamic shapes a delegate is handed symbolic sizes next to its tensors. An engine
takes tensors only, and every size that it needs is a dimension of one of them, or is computed from
such dimensions.
"""

from __future__ import annotations

import torch
from torch.fx import Graph

from trt_et.errors import BuilderError
from trt_et.graph.size_expressions import ShownSizes


def replace_sizes(graph: Graph, users: set[str]) -> set[str]:
    """Remove the placeholders of a graph that are sizes; return their names.

    ``users`` has the names of the placeholders that are arguments of the delegate.

    Raises:
        BuilderError: A size cannot be computed from the partition's input tensors.
    """
    placeholders = [n for n in graph.nodes if n.op == "placeholder" and n.name in users]
    sizes = [n for n in placeholders if isinstance(n.meta.get("val"), int | torch.SymInt)]
    shown = ShownSizes(n for n in placeholders if n not in sizes)
    # Placeholders come first.
    before = next(n for n in graph.nodes if n.op != "placeholder")
    for node in sizes:
        value = node.meta["val"]
        if not shown.show(value):
            raise BuilderError(
                f"size {node.name} = {value} cannot be computed from the partition's inputs; "
                "leave the operator that uses it to the CPU (excluded_ops=...)"
            )
        node.replace_all_uses_with(shown.insert(before, value))
        graph.erase_node(node)
    return {node.name for node in sizes}
