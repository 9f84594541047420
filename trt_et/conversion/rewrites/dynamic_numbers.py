"""Numbers computed from sizes, for operators whose converters are right for constants only."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.fx import GraphModule, Node

from trt_et.graph.insertion import insert_call, insert_number

__all__ = ["write_out_dynamic_numbers"]

aten = torch.ops.aten


def write_out_dynamic_numbers(module: GraphModule) -> None:
    """Count from 0 in steps of 1, and fill with 1; then multiply and add.

    Torch-TensorRT 2.13 and 2.14 round the length of a range down, so ``arange(0, 5, 2)`` gets two
    numbers; take no computed start of a range; and take no number to fill with that is a size.

    Args:
        module: Plain ATen, with ``val`` metadata; changed in place.
    """
    for node in list(module.graph.nodes):
        if node.target is aten.arange.start_step:
            _write_out_range(node)
        elif node.target is aten.full.default and isinstance(node.args[1], Node):
            _write_out_fill(node)
    module.recompile()


def _write_out_range(node: Node) -> None:
    arguments: Any = node.args
    start, end, step = (*arguments, 1)[:3]
    if not any(isinstance(number, Node) for number in (start, end)) or (start, step) == (0, 1):
        return
    if type(step) is not int or not all(_is_integer(number) for number in (start, end)):
        return
    low, high, size = (start, end, step) if step > 0 else (end, start, -step)
    length = insert_number(node, operator.sub, high, low)
    if size > 1:
        length = insert_number(node, operator.add, length, size - 1)
        length = insert_number(node, operator.floordiv, length, size)
    numbers = insert_call(node, aten.arange.start_step, 0, length, 1, **node.kwargs)
    if step != 1:
        numbers = insert_call(node, aten.mul.Tensor, numbers, step)
    if start != 0:
        numbers = insert_call(node, aten.add.Tensor, numbers, start)
    _replace(node, numbers)


def _write_out_fill(node: Node) -> None:
    sizes, number = node.args
    if node.meta["val"].dtype == torch.bool:
        return
    one = 1 if _is_integer(number) else 1.0
    ones = insert_call(node, aten.full.default, sizes, one, **node.kwargs)
    _replace(node, insert_call(node, aten.mul.Tensor, ones, number))


def _is_integer(number: Any) -> bool:  # noqa: ANN401
    value = number.meta["val"] if isinstance(number, Node) else number
    return isinstance(value, int | torch.SymInt) and not isinstance(value, bool)


def _replace(node: Node, by: Node) -> None:
    node.replace_all_uses_with(by)
    node.graph.erase_node(node)
