"""Holds uint8 tensors as float32 inside of a network: TensorRT has them only at its border."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch.fx import GraphModule, Node, map_arg
from torch.utils._pytree import tree_map

from trt_et.conversion.operators.types import cast
from trt_et.graph.insertion import insert_call
from trt_et.ops.uint8 import WRAPS, is_uint8

aten = torch.ops.aten

_NUMBERS: Final = 256  # 0 to 255.
_POSITIONS: Final = frozenset({aten.argmax.default, aten.argmin.default})


def hold_uint8_as_float32(module: GraphModule) -> None:
    """Cast uint8 inputs to float32, and compute in it; results that are uint8 become float32 too.

    The module's calls with uint8 tensors are those of ``trt_et.ops.uint8.takes_uint8``. TensorRT 10
    documents casts between uint8 and floats only.
    """
    graph = module.graph
    held = {node for node in graph.nodes if is_uint8(node.meta.get("val"))}
    if not held:
        return
    for node in list(graph.nodes):
        if node.op == "placeholder" and node in held:
            new = insert_call(node.next, aten._to_copy.default, node, dtype=torch.float32)
            node.replace_all_uses_with(new, delete_user_cb=lambda user, new=new: user is not new)
            held.add(new)
        elif node.op == "get_attr" and node in held:
            _hold_constant(module, node)
        elif node.op == "call_function" and not held.isdisjoint((node, *node.all_input_nodes)):
            new = _compute(node, held)
            if new is not node:
                node.replace_all_uses_with(new)
                held.add(new)
    graph.eliminate_dead_code()


def _hold_constant(module: GraphModule, node: Node) -> None:
    name = str(node.target)
    value: torch.Tensor = getattr(module, name)
    module.register_buffer(name, value.float())
    node.meta["val"] = node.meta["val"].float()


def _compute(node: Node, held: set[Node]) -> Node:
    """Return the node that computes a call's result, with uint8 tensors as float32."""
    value: Any = node.meta.get("val")  # An assertion has none.
    if node.target is aten._to_copy.default and node.args[0] not in held:
        return _to_uint8(node)
    is_number = isinstance(value, torch.Tensor) and value.dtype not in (torch.uint8, torch.bool)
    if is_number and node.target not in _POSITIONS:

        def promoted(argument: Node) -> Node:
            return cast(node, argument, value.dtype) if argument in held else argument

        node.args, node.kwargs = map_arg((node.args, node.kwargs), promoted)
    if not is_uint8(value):
        return node
    if "dtype" in node.kwargs:
        node.kwargs = {**node.kwargs, "dtype": torch.float32}
    node.meta["val"] = tree_map(lambda each: each.float() if is_uint8(each) else each, value)
    if node.target not in WRAPS:
        return node
    result = insert_call(node, node.target, *node.args, **node.kwargs)
    return _wrapped(node, result)


def _to_uint8(node: Node) -> Node:
    """Cast numbers to uint8 as torch does on x86: cut off, then modulo 256."""
    source: Any = node.args[0]
    dtype = source.meta["val"].dtype
    if dtype == torch.bool or dtype.is_floating_point:
        number: Node = cast(node, source, torch.float32)
        if dtype == torch.bool:
            return number
        number = _wrapped(node, insert_call(node, aten.trunc.default, number))
        # Torch makes 0 of an infinity and of NaN, both of which are NaN by now.
        is_known = insert_call(node, aten.ge.Scalar, number, 0)
        zero = insert_call(node, aten.full.default, [], 0, dtype=torch.float32)
        return insert_call(node, aten.where.self, is_known, number, zero)
    return cast(node, insert_call(node, aten.remainder.Scalar, source, _NUMBERS), torch.float32)


def _wrapped(before: Node, number: Node) -> Node:
    """Take whole numbers modulo 256; products with powers of two are exact."""
    quotient = insert_call(before, aten.mul.Scalar, number, 1 / _NUMBERS)
    whole = insert_call(before, aten.floor.default, quotient)
    multiple = insert_call(before, aten.mul.Scalar, whole, _NUMBERS)
    return insert_call(before, aten.sub.Tensor, number, multiple)
