"""Rewrites modelopt's 4-bit weights with a range for each block of a row into torchao's form.

modelopt cuts a weight's rows into blocks, quantizes each to 4 bits and back, and puts the rows
together. ``conversion/operators/grouped_weights.py`` knows 4-bit numbers times scales.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.fx import GraphModule, Node

from trt_et.graph.arguments import named_arguments
from trt_et.graph.inlining import inline
from trt_et.graph.insertion import insert_call
from trt_et.graph.operators import RESHAPES
from trt_et.ops.fake_quantize import SMALLEST_AMAX, limits

aten = torch.ops.aten


def rows_of_blocks(node: Node) -> list[Node]:
    """Return the reshapes that join the blocks of a weight to rows; empty for other calls.

    The call quantizes to 4 bits and back, one block a row.
    """
    arguments = named_arguments(node)
    if (arguments["num_bits"], arguments["exponent_bits"], arguments["unsigned"]) != (4, 0, False):
        return []
    blocks, ranges = node.meta["val"].shape, arguments["amax"].meta["val"].shape
    if len(blocks) != 2 or tuple(ranges) != (blocks[0], 1):
        return []
    results = [user for user in node.users if user.target in RESHAPES]
    shapes = [tuple(result.meta["val"].shape) for result in results]
    if len(results) < len(node.users) or len(set(shapes)) != 1:
        return []
    is_whole = len(shapes[0]) == 2 and shapes[0][1] % blocks[1] == 0
    return results if is_whole else []


def split_int4(
    blocks: Tensor, amax: Tensor, shape: tuple[int, int], *, narrow: bool
) -> tuple[Tensor, Tensor]:
    """Return a weight as int8 from -8 to 7, and the scales of its blocks, ``[rows, blocks]``.

    The argument ``blocks`` is the weight, one block a row; a narrow weight has no -8.
    """
    low, high = limits(4, 0, False, narrow)
    largest = amax.to(torch.float32)
    scale = torch.where(largest <= SMALLEST_AMAX, 1.0, largest) / high
    is_zero = largest <= SMALLEST_AMAX
    numbers = torch.where(is_zero, 0.0, torch.round(blocks.to(torch.float32) / scale))
    weight = torch.clamp(numbers, low, high).to(torch.int8).reshape(shape)
    return weight, scale.to(blocks.dtype).reshape(shape[0], -1)


def use_int4(module: GraphModule, results: list[Node], weight: Node, scale: Node) -> None:
    """Compute the rows of a weight from the parts that ``split_int4`` returns."""
    for result in results:
        call = insert_call(result, _dequantize, weight, scale)
        result.replace_all_uses_with(call)
        module.graph.erase_node(result)
        inline(module, call, _dequantize)


def _dequantize(weight: Tensor, scale: Tensor) -> Tensor:
    blocks = weight.reshape(*scale.shape, -1).to(scale.dtype)
    return (blocks * scale.reshape(*scale.shape, 1)).reshape(weight.shape)
