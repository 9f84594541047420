"""Ranges and fills by numbers that are computed from sizes."""

from __future__ import annotations

import operator
from typing import Any, Final

import torch
from torch.fx import Node

from trt_et.conversion.operator import Operator
from trt_et.graph.insertion import insert_call

aten = torch.ops.aten


def count(node: Node) -> Node | None:
    """Count from 0 in steps of 1, then multiply and add.

    Torch-TensorRT 2.13 rounds the length of a range down, so ``arange(0, 5, 2)`` gets two numbers,
    and takes no computed start. 2.14 adds a start that is a size as int32 beside an int64 step.
    """
    arguments: Any = node.args
    start, end, step = (*arguments, 1)[:3]
    if not any(isinstance(number, Node) for number in (start, end)) or (start, step) == (0, 1):
        return None
    if type(step) is not int or not all(_is_integer(number) for number in (start, end)):
        return None
    low, high, size = (start, end, step) if step > 0 else (end, start, -step)
    length = insert_call(node, operator.sub, high, low)
    if size > 1:
        length = insert_call(node, operator.add, length, size - 1)
        length = insert_call(node, operator.floordiv, length, size)
    numbers = insert_call(node, aten.arange.start_step, 0, length, 1, **node.kwargs)
    if step != 1:
        numbers = insert_call(node, aten.mul.Tensor, numbers, step)
    if start != 0:
        numbers = insert_call(node, aten.add.Tensor, numbers, start)
    return numbers


def fill(node: Node) -> Node | None:
    """Fill with 1 and multiply; Torch-TensorRT 2.13 and 2.14 take no size to fill with."""
    sizes, number = node.args
    if not isinstance(number, Node) or node.meta["val"].dtype == torch.bool:
        return None
    one = 1 if _is_integer(number) else 1.0
    ones = insert_call(node, aten.full.default, sizes, one, **node.kwargs)
    return insert_call(node, aten.mul.Tensor, ones, number)


def _is_integer(number: Any) -> bool:  # noqa: ANN401
    value = number.meta["val"] if isinstance(number, Node) else number
    return isinstance(value, int | torch.SymInt) and not isinstance(value, bool)


ARANGE: Final = Operator(
    "arange",
    (aten.arange.start_step,),
    rewrite=count,
    upstream="arange",
)
FULL: Final = Operator("full", (aten.full.default,), rewrite=fill)
