"""Stores numbers that torchao quantizes to int8 at run time as int32, which TensorRT computes with.

They are rounded and limited to int8's range before, so they are the same numbers.
"""

from __future__ import annotations

from collections.abc import Collection
from operator import getitem
from typing import Any, Final

import torch
from torch._ops import OpOverload
from torch.fx import Graph, Node

from trt_et.graph.arguments import named_arguments
from trt_et.graph.insertion import compute_value
from trt_et.ops.quantize import moves_numbers

INT_MM: Final = torch.ops.aten._int_mm.default
"""Multiplies matrices of int8 numbers."""

aten = torch.ops.aten

_CHOOSE: Final = "torchao::choose_qparams_affine"
_QUANTIZE: Final = "torchao::quantize_affine"
_DEQUANTIZE: Final = "torchao::dequantize_affine"
_OWN: Final = frozenset({_CHOOSE, _QUANTIZE, _DEQUANTIZE})
_CASTS: Final = (aten.to.dtype, aten._to_copy.default)
_KEEPING: Final = frozenset(
    {*_CASTS, INT_MM, aten._assert_tensor_metadata.default, aten.flatten.using_ints, getitem}
)


def widen_quantized(graph: Graph, weights: Collection[Node]) -> None:
    """Store numbers that are quantized to int8 at run time as int32.

    This happens only if the program just multiplies, dequantizes or rearranges them: other int8
    arithmetic, and a result of the program, would change. The nodes ``weights``, which
    depend on weights only, stay as they are.
    """
    made = [node for node in graph.nodes if node.op != "placeholder" and node not in weights]
    if not all(_keeps_numbers(u) for node in made if _is_int8(node) for u in node.users):
        return
    widened: set[Node] = set()
    for node in made:
        if node.op != "call_function" or node.target is INT_MM:
            continue
        reads = not widened.isdisjoint(node.all_input_nodes)
        if reads and node.target is aten._assert_tensor_metadata.default:
            graph.erase_node(node)
        elif _widen(node, reads) or reads:
            before = node.meta.get("val")
            compute_value(node, node)
            if _dtypes(before) != _dtypes(node.meta["val"]):
                widened.add(node)


def _keeps_numbers(node: Node) -> bool:
    """Return whether a node gives the same result for wider numbers."""
    if isinstance(node.target, OpOverload) and node.target._schema.name in _OWN:
        return True
    return node.target in _KEEPING or moves_numbers(node)


def _is_int8(node: Node) -> bool:
    return torch.int8 in _dtypes(node.meta.get("val"))


def _widen(node: Node, reads: bool) -> bool:
    """Change the dtype argument of a node; return False if it has none."""
    if not isinstance(node.target, OpOverload):
        return False
    name, given = node.target._schema.name, named_arguments(node)
    if name == _CHOOSE and given["zero_point_dtype"] is torch.int8:
        return _give(node, given, "zero_point_dtype")
    if name == _QUANTIZE and given["output_dtype"] is torch.int8:
        # By default, its limits are the dtype's.
        known = given["quant_min"] is not None and given["quant_max"] is not None
        return known and _give(node, given, "output_dtype")
    if name == _DEQUANTIZE and reads and given["input"].meta["val"].dtype is torch.int32:
        return _give(node, given, "input_dtype")
    # x86 multiplies unsigned numbers by int8 ones, and takes the shift out of the result.
    if node.target in _CASTS and given["dtype"] is torch.uint8 and _is_only_multiplied(node):
        return _give(node, given, "dtype")
    return False


def _give(node: Node, given: dict[str, Any], name: str) -> bool:
    schema = node.target._schema  # type: ignore[union-attr]
    values = {**given, name: torch.int32}
    node.args = tuple(values[a.name] for a in schema.arguments if not a.kwarg_only)
    node.kwargs = {a.name: values[a.name] for a in schema.arguments if a.kwarg_only}
    return True


def _is_only_multiplied(node: Node) -> bool:
    users = [u for u in node.users if u.target is not aten._assert_tensor_metadata.default]
    return bool(users) and all(user.target is INT_MM for user in users)


def _dtypes(value: object) -> list[torch.dtype | None]:
    values = value if isinstance(value, (tuple, list)) else [value]
    return [getattr(each, "dtype", None) for each in values]
