"""Truncating divisions and remainders, expressed by divisions that round down.

Torch-TensorRT 2.13 takes the sign of a quotient from the product of the operands, which overflows
in integers and is 0 if a float is divided by 0. It computes a remainder from two such divisions,
and does not truncate bfloat16 at all.
"""

from __future__ import annotations

from typing import Any, Final

import torch
from torch.fx import GraphModule, Node

from trt_et.graph.insertion import insert_call

__all__ = ["divide_exactly"]

aten = torch.ops.aten

_DIVISIONS: Final = (aten.div.Tensor_mode, aten.div.Scalar_mode)
_FMODS: Final = (aten.fmod.Tensor, aten.fmod.Scalar)
_REMAINDERS: Final = (
    aten.remainder.Tensor,
    aten.remainder.Scalar,
    aten.remainder.Scalar_Tensor,
)

# A quotient that is rounded to half precision may be rounded up to the next integer.
_HALF_PRECISION: Final = (torch.float16, torch.bfloat16)


def divide_exactly(module: GraphModule) -> None:
    """Express truncated quotients and integer remainders by divisions that TensorRT computes right.

    Remainders of half precision are computed in float32.

    Args:
        module: Plain ATen, with ``val`` metadata, its operands in the dtype of the result (see
            :mod:`trt_et.conversion.rewrites.type_promotion`); changed in place.
    """
    for node in list(module.graph.nodes):
        value = node.meta.get("val")
        if not isinstance(value, torch.Tensor):
            continue
        is_integer = not value.dtype.is_floating_point
        first, second = (*node.args, None, None)[:2]
        if node.target in _DIVISIONS and node.kwargs.get("rounding_mode") == "trunc":
            _replace(node, _truncated(node, first, second, is_integer))
        elif node.target is aten.trunc.default and not is_integer:
            _replace(node, _cut_off(node, first))
        elif node.target in _FMODS and is_integer:
            _replace(node, _rest(node, first, _truncated(node, first, second, is_integer), second))
        elif node.target in _REMAINDERS and is_integer:
            _replace(node, _rest(node, first, _rounded_down(node, first, second), second))
        elif node.target in (*_FMODS, *_REMAINDERS) and value.dtype in _HALF_PRECISION:
            _replace(node, _in_float32(node))
    module.graph.eliminate_dead_code()
    module.recompile()


def _replace(node: Node, result: Node) -> None:
    node.replace_all_uses_with(result)


def _in_float32(node: Node) -> Node:
    dtype = node.meta["val"].dtype
    wide = (
        insert_call(node, aten._to_copy.default, argument, dtype=torch.float32)
        if isinstance(argument, Node)
        else torch.tensor(argument, dtype=dtype).item()  # Torch also rounds numbers.
        for argument in node.args
    )
    result = insert_call(node, node.target, *wide)
    return insert_call(node, aten._to_copy.default, result, dtype=dtype)


def _call(before: Node, operator: Any, first: Any, second: Any) -> Node:  # noqa: ANN401
    """Insert a call of a binary operator, one of whose operands may be a number."""
    if not isinstance(first, Node):
        value = second.meta["val"]
        first = insert_call(before, aten.full.default, [], first, dtype=value.dtype)
    overload = operator.Tensor if isinstance(second, Node) else operator.Scalar
    return insert_call(before, overload, first, second)


def _rounded_down(node: Node, first: Any, second: Any) -> Node:  # noqa: ANN401
    if isinstance(second, Node):
        if not isinstance(first, Node):
            dtype = second.meta["val"].dtype
            first = insert_call(node, aten.full.default, [], first, dtype=dtype)
        return insert_call(node, aten.div.Tensor_mode, first, second, rounding_mode="floor")
    return insert_call(node, aten.div.Scalar_mode, first, second, rounding_mode="floor")


def _rest(node: Node, first: Any, quotient: Node, second: Any) -> Node:  # noqa: ANN401
    return _call(node, aten.sub, first, _call(node, aten.mul, quotient, second))


def _truncated(node: Node, first: Any, second: Any, is_integer: bool) -> Node:  # noqa: ANN401
    if not is_integer:
        return _cut_off(node, _call(node, aten.div, first, second))
    # The quotient rounded down is one too low if it is negative and leaves a rest.
    down = _rounded_down(node, first, second)
    rest = _rest(node, first, down, second)
    # The rest has the divisor's sign.
    differs = insert_call(
        node,
        aten.bitwise_xor.Tensor,
        _call(node, aten.lt, first, 0),
        insert_call(node, aten.lt.Scalar, rest, 0),
    )
    low = insert_call(
        node, aten.bitwise_and.Tensor, differs, insert_call(node, aten.ne.Scalar, rest, 0)
    )
    one = insert_call(node, aten._to_copy.default, low, dtype=down.meta["val"].dtype)
    return insert_call(node, aten.add.Tensor, down, one)


def _cut_off(node: Node, number: Any) -> Node:  # noqa: ANN401
    up, down = (insert_call(node, op.default, number) for op in (aten.ceil, aten.floor))
    negative = insert_call(node, aten.lt.Scalar, number, 0)
    return insert_call(node, aten.where.self, negative, up, down)
