"""Reads by index: ``index``, ``gather``, ``slice``, ``select``, ``embedding``.

TensorRT takes negative indices in one layer only: a gather along a dimension of static size
(``IGatherLayer`` in its ``NvInfer.h``). Torch-TensorRT 2.13 passes them unchanged to scatters and
to gathers along dynamic dimensions. From several indices it computes one number, so that
``x[[0], [-1]]`` picks from the last row. ``index_check.py`` refuses the others.

Its converters of ``slice`` and ``select`` gather by a negative index, bound no slice by the size
(``x[-9:]`` of 5 rows begins at row 1), and take no computed index.
"""

from __future__ import annotations

import sys
from typing import Any, Final

import numpy as np
import torch
from torch.fx import Node

from trt_et.conversion.layers import Layers
from trt_et.conversion.operator import Operator
from trt_et.graph.insertion import insert_call, insert_size
from trt_et.graph.operators import INTEGERS

aten = torch.ops.aten

_GATHERS: Final = (aten.index.Tensor, aten._unsafe_index.Tensor)
_SCATTERS: Final = (aten.index_put.default, aten._unsafe_index_put.default)


def normalize(node: Node) -> None:
    """Add the size to negative indices that TensorRT does not count from the end."""
    source, indices = node.args[0], list(node.args[1])  # type: ignore[arg-type]
    given = [(dim, index) for dim, index in enumerate(indices) if index is not None]
    if not isinstance(source, Node) or not all(
        isinstance(index, Node) and index.meta["val"].dtype in INTEGERS for _, index in given
    ):
        return  # A mask indexes several dimensions.
    sizes = source.meta["val"].shape
    if node.target in _GATHERS and len(given) == 1 and isinstance(sizes[given[0][0]], int):
        return
    for dim, index in given:
        indices[dim] = _normalized(node, source, dim, index)
    node.args = (source, indices, *node.args[2:])


def _normalized(node: Node, source: Node, dim: int, index: Node) -> Node:
    if index.op == "get_attr":
        value: Any = getattr(node.graph.owning_module, str(index.target))
        if bool((value >= 0).all()):
            return index
    return count_from_zero(node, index, insert_size(node, source, dim))


def count_from_zero(before: Node, index: Node, size: Any) -> Node:  # noqa: ANN401
    """Insert calls that add a size to the negative ones among some indices."""
    wrapped = insert_call(before, aten.add.Tensor, index, size)
    negative = insert_call(before, aten.lt.Scalar, index, 0)
    return insert_call(before, aten.where.self, negative, wrapped, index)


INDEX: Final = Operator(
    "index", (*_GATHERS, *_SCATTERS), rewrite=normalize, upstream="negative_indices"
)


def add_slice(layers: Layers, args: Any, kwargs: Any) -> Any:  # noqa: ANN401
    """Add the layers of one ``aten.slice.Tensor``; bound its indices by the size."""
    given: Any = (*args, *(0, 0, None, None, 1)[len(args) :])
    source, dim, start, end, step = given
    dim %= len(source.shape)
    start, end = 0 if start is None else start, sys.maxsize if end is None else end
    size = source.shape[dim]
    if size >= 0 and isinstance(start, int) and isinstance(end, int):
        first, last, _ = slice(start, end).indices(size)
        return layers.convert((source, dim, first, max(first, last), step), kwargs)
    source = layers.tensor(source, "source")  # It may be a constant.
    rank = len(source.shape)
    numbers = _Numbers(layers, source)
    size = numbers.size(dim)
    first, last = numbers.bounded(start, size), numbers.bounded(end, size)
    known = layers.node.meta["val"].shape[dim]
    if isinstance(known, int):
        count = numbers.constant(known)
    else:
        count = numbers.add("SUB", last, first)
        if start != 0 and end != sys.maxsize:
            count = numbers.add("MAX", count, numbers.constant(0))
        if step > 1:
            count = numbers.add("SUM", count, numbers.constant(step - 1))
            count = numbers.add("FLOOR_DIV", count, numbers.constant(step))
    starts = [numbers.constant(0)] * rank
    starts[dim] = first
    counts = [numbers.size(axis) for axis in range(rank)]
    counts[dim] = count
    zeros, strides = [0] * rank, [1] * rank
    strides[dim] = step
    layer = layers.net.add_slice(source, zeros, zeros, strides)
    layer.set_input(1, numbers.line(starts))
    layer.set_input(2, numbers.line(counts))
    return layers.result(layer, "slice")


def add_select(layers: Layers, args: Any, kwargs: Any) -> Any:  # noqa: ANN401
    """Add the layers of one ``aten.select.int``, whose index TensorRT may have to compute."""
    source, dim, index = args
    if isinstance(index, int) and (index >= 0 or source.shape[dim] >= 0):
        return layers.convert(args, kwargs)
    source = layers.tensor(source, "source")
    dim %= len(source.shape)
    numbers = _Numbers(layers, source)
    position = layers.net.add_shuffle(numbers.from_zero(index, numbers.size(dim)))
    position.reshape_dims = layers.trt.Dims()
    number = layers.result(position, "index")
    return layers.result(layers.net.add_gather(source, number, dim), "select")


class _Numbers:
    """Arithmetic of one tensor's sizes; each number is a tensor of one int32."""

    def __init__(self, layers: Layers, source: Any) -> None:  # noqa: ANN401
        self.layers = layers
        self.added = 0
        self.source = source
        shape = layers.net.add_shape(source).get_output(0)
        self.shape = layers.cast(shape, torch.int32, "shape")

    def _label(self) -> str:
        self.added += 1
        return f"number{self.added}"

    def constant(self, number: int) -> Any:  # noqa: ANN401
        """Return a constant."""
        return self.layers.tensor(np.array([number], np.int32), self._label())

    def size(self, dim: int) -> Any:  # noqa: ANN401
        """Return the tensor's size along a dimension."""
        if self.source.shape[dim] >= 0:
            return self.constant(self.source.shape[dim])
        layer = self.layers.net.add_slice(self.shape, (dim,), (1,), (1,))
        return self.layers.result(layer, self._label())

    def add(self, operation: str, left: Any, right: Any) -> Any:  # noqa: ANN401
        """Return the result of an elementwise operation."""
        kind = getattr(self.layers.trt.ElementWiseOperation, operation)
        return self.layers.result(self.layers.net.add_elementwise(left, right, kind), self._label())

    def from_zero(self, index: Any, size: Any) -> Any:  # noqa: ANN401
        """Return an index (a number or TensorRT's tensor), plus the size if it is negative."""
        if isinstance(index, int):
            number = self.constant(index)
            return self.add("SUM", size, number) if index < 0 else number
        line = self.layers.net.add_shuffle(self.layers.cast(index, torch.int32, self._label()))
        line.reshape_dims = (1,)
        number = self.layers.result(line, self._label())
        negative = self.add("LESS", number, self.constant(0))
        wrapped = self.add("SUM", number, size)
        layer = self.layers.net.add_select(negative, wrapped, number)
        return self.layers.result(layer, self._label())

    def bounded(self, index: Any, size: Any) -> Any:  # noqa: ANN401
        """Return a start or an end, counted from 0 and within the size."""
        if isinstance(index, int) and index in (0, sys.maxsize):
            return size if index else self.constant(0)
        number = self.from_zero(index, size)
        if not isinstance(index, int) or index < 0:
            number = self.add("MAX", number, self.constant(0))
        if not isinstance(index, int) or index > 0:
            number = self.add("MIN", number, size)
        return number

    def line(self, numbers: list[Any]) -> Any:  # noqa: ANN401
        """Join the numbers into one tensor."""
        layer = self.layers.net.add_concatenation(numbers)
        layer.axis = 0
        return self.layers.result(layer, self._label())


SLICE: Final = Operator("slice", (aten.slice.Tensor,), add_layer=add_slice)
SELECT: Final = Operator("select", (aten.select.int,), add_layer=add_select)


def add_gather(layers: Layers, args: Any, kwargs: Any) -> Any:  # noqa: ANN401
    """Add the layer of one ``aten.gather``, whose tensors have at least one dimension.

    Torch-TensorRT 2.13 adds the same layer, but refuses the operator if any size is dynamic.
    """
    source = layers.tensor(args[0], "input")
    index = layers.cast(layers.tensor(args[2], "index"), torch.int32, "indices")
    layer = layers.net.add_gather_v2(source, index, layers.trt.GatherMode.ELEMENT)
    layer.axis = args[1] % len(source.shape)
    return layers.result(layer, "gather")


GATHER: Final = Operator("gather", (aten.gather.default,), add_layer=add_gather)


def add_embedding(layers: Layers, args: Any, kwargs: Any) -> Any:  # noqa: ANN401
    """Add the layers of Torch-TensorRT's converter, which refuses constant int64 indices (2.13)."""
    weights, indices, *rest = args
    if isinstance(indices, torch.Tensor):
        indices = indices.int()
    return layers.convert([weights, indices, *rest], kwargs)


EMBEDDING: Final = Operator(
    "embedding",
    (aten.embedding.default,),
    add_layer=add_embedding,
    fixed_in=("torch", "2.14"),
)
