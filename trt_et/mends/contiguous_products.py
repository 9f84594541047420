"""Copies what products take, if its place in memory would make a number of a dynamic size.

A retrace computes a linear layer as torch's ``matmul``, which compares the strides of its input
with those of a contiguous tensor (``should_fold`` in ``torch/_decomp/decompositions.py``, torch
2.13). If they are equal for the example, such as ``16 == 8 * batch``, the size becomes a number.
``torch.export`` does not ask: the weight requires a gradient there.
"""

from __future__ import annotations

from typing import Any, Final

import torch
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.fx import Graph, Node

from trt_et.graph.insertion import insert_call
from trt_et.graph.subgraphs import edited, nodes_of
from trt_et.graph.symbolic_shapes import of_example, same_sizes

aten = torch.ops.aten

# Their decompositions have such products.
RECURRENT: Final[tuple[OpOverload, ...]] = (
    *(aten.lstm.input, aten.gru.input, aten.rnn_tanh.input, aten.rnn_relu.input),
    *(aten.lstm_cell.default, aten.gru_cell.default),
)
_PRODUCTS: Final = (aten.linear.default, aten.matmul.default)


def keep_sizes_of_products(program: ExportedProgram) -> ExportedProgram:
    """Copy the inputs of linear and recurrent layers whose strides would fix a dynamic size."""
    if not program.range_constraints or not any(map(_fixes_a_size, nodes_of(program))):
        return program
    return edited(program, _copy_inputs, branches=True)


def _copy_inputs(graph: Graph) -> None:
    for node in filter(_fixes_a_size, list(graph.nodes)):
        source = node.args[0]
        copy = insert_call(node, aten.clone.default, source, memory_format=torch.contiguous_format)
        node.update_arg(0, copy)


def _fixes_a_size(node: Node) -> bool:
    if node.target not in (*_PRODUCTS, *RECURRENT):
        return False
    source: Any = node.args[0]
    x = source.meta["val"]
    contiguous = [1]
    for size in reversed(x.shape[1:]):
        contiguous.insert(0, size * contiguous[0])
    if node.target in RECURRENT:
        return not same_sizes(x.stride(), contiguous)
    weight: Any = node.args[1]
    return x.dim() > 2 >= weight.meta["val"].dim() and any(
        of_example(stride) == of_example(expected) and not same_sizes([stride], [expected])
        for stride, expected in zip(x.stride(), contiguous, strict=True)
    )
