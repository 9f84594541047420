"""Remainders of sizes, computed from quotients.

Python's remainder has the divisor's sign. ExecuTorch 1.5's ``executorch_prim::mod`` and
Torch-TensorRT 2.13's converter of ``operator.mod`` give it the dividend's. Both round quotients
down, as Python does.
"""

from __future__ import annotations

import operator

from torch import SymFloat, SymInt
from torch.fx import Graph, Node

from trt_et.graph.insertion import insert_call
from trt_et.graph.symbolic_shapes import may_be_negative


def has_negative_remainder(node: Node) -> bool:
    """Return whether a node computes the remainder of sizes of which one may be negative.

    Not of floats computed from sizes: ExecuTorch 1.5 lowers their remainder, but no quotient that
    is rounded down.
    """
    if node.target is not operator.mod or isinstance(node.meta.get("val"), SymFloat):
        return False
    return not all(map(_is_natural, node.args))


def write_out_remainders(graph: Graph) -> None:
    """Replace ``a % b`` by ``a - a // b * b``, if either may be negative."""
    for node in graph.find_nodes(op="call_function", target=operator.mod):
        if not has_negative_remainder(node):
            continue
        a, b = node.args
        quotient = insert_call(node, operator.floordiv, a, b)
        multiple = insert_call(node, operator.mul, quotient, b)
        # The node stays: a program's signature has the name of an output.
        node.target, node.args = operator.sub, (a, multiple)


def _is_natural(argument: object) -> bool:
    value = argument.meta.get("val") if isinstance(argument, Node) else argument
    if isinstance(value, SymInt):
        return not may_be_negative(value)
    return isinstance(value, int) and value >= 0
