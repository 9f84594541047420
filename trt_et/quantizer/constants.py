"""Finds the nodes of an exported module that are computed from parameters and constants only."""

from __future__ import annotations

import torch
from torch._ops import OpOverload
from torch.fx import GraphModule, Node
from torchao.quantization.pt2e.utils import getattr_from_fqn

from trt_et.graph.arguments import writes_in_place


def constants_of(model: GraphModule) -> set[Node]:
    """Return the constants of a module as ``ExportedProgram.module()`` returns it.

    A buffer that the program writes to, such as a KV cache, is none.
    """
    constants: set[Node] = set()
    for node in model.graph.nodes:
        if any(map(writes_in_place, node.users)):
            continue
        if node.op == "get_attr":
            is_constant = isinstance(getattr_from_fqn(model, str(node.target)), torch.Tensor)
        else:
            sources = node.all_input_nodes
            is_operator = node.op == "call_function" and isinstance(node.target, OpOverload)
            is_constant = is_operator and bool(sources) and constants.issuperset(sources)
        if is_constant:
            constants.add(node)
    return constants
