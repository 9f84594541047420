"""Casts the tensors that are joined to one dtype, as torch promotes them.

ExecuTorch's check of Edge programs refuses ``torch.cat`` of most mixed dtypes ("mismatched
dtypes"), and its CPU kernel copies the bytes of the others (int32 into float32).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.fx import Graph, Node

from trt_et.graph.insertion import insert_call
from trt_et.graph.subgraphs import edited, nodes_of

aten = torch.ops.aten


def cast_joined(program: ExportedProgram) -> ExportedProgram:
    """Cast the tensors that ``cat``, ``stack`` and similar operators join, if they differ."""
    if not any(map(_is_mixed, nodes_of(program))):
        return program
    return edited(program, _cast, branches=True)


def _cast(graph: Graph) -> None:
    for node in filter(_is_mixed, list(graph.nodes)):
        dtype, joined = node.meta["val"].dtype, _joined(node)
        node.update_arg(
            0,
            [
                each
                if each.meta["val"].dtype is dtype
                else insert_call(node, aten._to_copy.default, each, dtype=dtype)
                for each in joined
            ],
        )


def _is_mixed(node: Node) -> bool:
    return any(each.meta["val"].dtype is not node.meta["val"].dtype for each in _joined(node))


def _joined(node: Node) -> Sequence[Node]:
    """Return the tensors that a call joins to one."""
    target, value = node.target, node.meta.get("val")
    if not isinstance(target, OpOverload) or not isinstance(value, torch.Tensor):
        return ()
    first = target._schema.arguments[:1]
    tensors: Any = node.args[0] if node.args else ()
    return tensors if first and first[0].name == "tensors" else ()
