"""Computes numbers from dynamic sizes in tensors: ``x / (height * width) ** 0.5``.

ExecuTorch 1.5 refuses roots, maxima and minima of sizes (an ``AssertionError`` without a text), and
keeps quotients on the CPU. A tensor of one element takes the place of such a number.
"""

from __future__ import annotations

import operator
from typing import Any, Final

import torch
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.fx import Graph, Node

from trt_et.graph.arguments import named_arguments
from trt_et.graph.insertion import insert_call
from trt_et.graph.subgraphs import edited, nodes_of

aten = torch.ops.aten

_EXTREMES: Final[dict[Any, OpOverload]] = {
    torch.sym_max: aten.maximum.default,
    torch.sym_min: aten.minimum.default,
}
# Operators of two numbers, and of two tensors.
_ARITHMETIC: Final[dict[Any, OpOverload]] = {
    operator.add: aten.add.Tensor,
    operator.sub: aten.sub.Tensor,
    operator.mul: aten.mul.Tensor,
    operator.truediv: aten.div.Tensor,
    operator.pow: aten.pow.Tensor_Tensor,
    **_EXTREMES,
}
_USERS: Final = {
    **{each.Tensor: each.Tensor for each in (aten.add, aten.sub, aten.mul, aten.div)},
    aten.rsub.Scalar: aten.rsub.Tensor,
    aten.full.default: aten.expand.default,
}


def keep_numbers_of_sizes_in_tensors(program: ExportedProgram) -> ExportedProgram:
    """Replace numbers that are computed from sizes by tensors, where a tensor meets one."""
    if not program.range_constraints or not any(map(_takes_number, nodes_of(program))):
        return program
    return edited(program, _use_tensors, branches=True)


def _use_tensors(graph: Graph) -> None:
    made: dict[Any, Node] = {}  # Each layer of a model may use the same number.
    for node in filter(_takes_number, list(graph.nodes)):
        dtype, target = node.meta["val"].dtype, _USERS[node.target]
        floats = torch.float64 if dtype is torch.float64 else torch.float32
        key = node.args[1], floats
        number = made[key] = made.get(key) or _tensor_of(node.args[1], node, floats)
        if node.target is aten.full.default:
            value = insert_call(node, aten._to_copy.default, number, dtype=dtype)
            new = insert_call(node, target, value, node.args[0])
        else:
            new = insert_call(node, target, node.args[0], number)
        new.meta = {**node.meta, "val": new.meta["val"]}
        node.replace_all_uses_with(new)
        graph.erase_node(node)
        new.name = node.name
    graph.eliminate_dead_code()


def _takes_number(node: Node) -> bool:
    if node.target not in _USERS or len(node.args) < 2:
        return False
    if named_arguments(node).get("alpha", 1) != 1:
        return False
    return _is_number(node.args[1]) and _is_computable(node.args[1])


def _is_number(value: object) -> bool:
    """Return whether ExecuTorch has no size for this: a float, or the larger of two sizes."""
    if not isinstance(value, Node) or value.op != "call_function":
        return False
    if isinstance(value.meta["val"], torch.SymFloat) or value.target in _EXTREMES:
        return True
    return value.target in _ARITHMETIC and any(map(_is_number, value.args))


def _is_computable(value: Any) -> bool:  # noqa: ANN401
    if not _is_number(value):
        return isinstance(value, int | float) or isinstance(value.meta["val"], torch.SymInt)
    return (value.target is torch.sym_float or value.target in _ARITHMETIC) and all(
        map(_is_computable, value.args)
    )


def _tensor_of(value: Any, before: Node, floats: torch.dtype) -> Node:  # noqa: ANN401
    """Insert the tensor of shape [] with a number: int64, or ``floats`` for a float."""
    if not _is_number(value):
        dtype = floats if isinstance(value, float) else torch.int64
        return insert_call(before, aten.scalar_tensor.default, value, dtype=dtype)
    operands = [_tensor_of(each, before, floats) for each in value.args]
    if isinstance(value.meta["val"], torch.SymFloat):
        operands = [
            each
            if each.meta["val"].dtype is floats
            else insert_call(before, aten._to_copy.default, each, dtype=floats)
            for each in operands
        ]
    if value.target is torch.sym_float:
        return operands[0]
    return insert_call(before, _ARITHMETIC[value.target], *operands)
