"""Computes the strides that a model asks for from sizes: ExecuTorch 1.5 has no ``sym_stride``."""

from __future__ import annotations

import operator
from functools import reduce
from math import prod
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Graph, Node

from trt_et.graph.insertion import insert_call, insert_size
from trt_et.graph.subgraphs import edited, nodes_of
from trt_et.graph.symbolic_shapes import of_example, same_sizes

aten = torch.ops.aten


def compute_strides(program: ExportedProgram) -> ExportedProgram:
    """Replace the strides of tensors without gaps by products of sizes."""
    if not any(node.target is aten.sym_stride.int for node in nodes_of(program)):
        return program
    return edited(program, _use_sizes, branches=True)


def _use_sizes(graph: Graph) -> None:
    for node in graph.find_nodes(op="call_function", target=aten.sym_stride.int):
        tensor: Any = node.args[0]
        x: torch.Tensor = tensor.meta["val"]
        stride = x.stride()[node.args[1]]
        inside = [
            dim
            for dim, other in enumerate(x.stride())
            if (of_example(other) or 0) < (of_example(stride) or 0)
        ]
        if not same_sizes([prod(x.shape[dim] for dim in inside)], [stride]):
            continue
        sizes = [insert_size(node, tensor, dim) for dim in inside]
        numbers = prod(size for size in sizes if not isinstance(size, Node))
        computed: list[Node | int] = [size for size in sizes if isinstance(size, Node)]
        if numbers != 1 or not computed:
            computed.append(numbers)
        product = reduce(lambda a, b: insert_call(node, operator.mul, a, b), computed)
        node.replace_all_uses_with(product)
        graph.erase_node(node)
