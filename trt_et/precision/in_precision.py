"""Rewrites a fragment for a precision, so that a support check converts what will be built."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
from torch.fx import Graph, Node

from trt_et.engine_program.editable_program import EditableGraph
from trt_et.graph.fragment import Fragment
from trt_et.precision.casts import insert_casts


def in_precision(fragment: Fragment, precision: torch.dtype, low: Collection[Node]) -> Fragment:
    """Return a copy of a fragment in which the calls ``low`` compute in a lower precision.

    Calls keep their names; inputs and outputs keep their dtypes. The values of constants in the
    precision count as unknown.
    """
    graph = Graph()
    copies: dict[Node, Node] = {}
    for source in fragment.sources:
        copies[source] = graph.placeholder(source.name)
        copies[source].meta["val"] = source.meta["val"]
    for call in fragment.calls:
        copies[call] = graph.node_copy(call, copies.__getitem__)
        copies[call].name = call.name
    graph.output(tuple(copies[call] for call in fragment.outputs))
    constants = fragment.constants
    known = {copies[s]: constants[s] for s in fragment.sources if s in constants}
    fakes = {node: node.meta["val"] for node in known}
    program = EditableGraph(
        graph, {node: fake for node, fake in fakes.items() if isinstance(fake, torch.Tensor)}
    )
    insert_casts(program, precision, {copies[node] for node in low})
    calls = tuple(node for node in graph.nodes if node.op == "call_function")
    results: Any = graph.output_node().args[0]
    # An output must be a call; a graph of moves may return one twice.
    return Fragment(
        calls, tuple(dict.fromkeys(results)), {**dict.fromkeys(program.values), **known}
    )
