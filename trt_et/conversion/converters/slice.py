"""``slice`` and ``select`` along dynamic dimensions, by indices that count as torch counts them.

Import it only after Torch-TensorRT (see ``network.py``). The converters of Torch-TensorRT 2.13
gather by a negative index, which TensorRT takes along static dimensions only, bound no slice by the
size (``x[-9:]`` of 5 rows begins at row 1), and take no computed index.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import tensorrt as trt
import torch
from torch.fx import Node
from torch_tensorrt.dynamo.conversion.converter_utils import cast_trt_tensor, get_trt_tensor

__all__ = ["add_select_index", "add_slice", "bound_slice", "is_computed_index", "is_computed_slice"]

_Operation = trt.ElementWiseOperation


def bound_slice(args: Any) -> Any:  # noqa: ANN401
    """Return the arguments of ``aten.slice.Tensor``, bounded by the size if that is static."""
    source, dim, start, end, step = _arguments(args)
    size = source.shape[dim]
    if size < 0 or not isinstance(start, int) or not isinstance(end, int):
        return args
    first, last, _ = slice(start, end).indices(size)
    return source, dim, first, max(first, last), step


def is_computed_slice(args: Any) -> bool:  # noqa: ANN401
    """Check whether TensorRT must compute the start or the end of an ``aten.slice.Tensor``."""
    source, dim, start, end, _ = _arguments(args)
    return source.shape[dim] < 0 or not isinstance(start, int) or not isinstance(end, int)


def is_computed_index(args: Any) -> bool:  # noqa: ANN401
    """Check whether TensorRT must compute the index of an ``aten.select.int``."""
    source, dim, index = args
    return not isinstance(index, int) or (index < 0 and source.shape[dim] < 0)


def add_slice(ctx: Any, node: Node, args: Any, kwargs: Any) -> Any:  # noqa: ANN401
    """Add the layers of one ``aten.slice.Tensor``.

    Args:
        ctx: Torch-TensorRT's ``ConversionContext``.
        node: The call.
        args: The tensor, the dimension, the start and the end (numbers, None, or TensorRT's
            tensors) and the step; the last ones may be missing.
        kwargs: Empty.

    Returns:
        TensorRT's tensor.
    """
    source, dim, start, end, step = _arguments(args)
    source = get_trt_tensor(ctx, source, f"{node.name}_source")  # It may be a constant.
    rank = len(source.shape)
    numbers = _Numbers(ctx, node.name, source)
    size = numbers.size(dim)
    first, last = numbers.bounded(start, size), numbers.bounded(end, size)
    known = node.meta["val"].shape[dim]
    if isinstance(known, int):
        count = numbers.constant(known)
    else:
        length = numbers.add(_Operation.SUB, last, first)
        if start != 0 and end != sys.maxsize:
            length = numbers.add(_Operation.MAX, length, numbers.constant(0))
        if step > 1:
            length = numbers.add(_Operation.SUM, length, numbers.constant(step - 1))
            length = numbers.add(_Operation.FLOOR_DIV, length, numbers.constant(step))
        count = length
    starts = [numbers.constant(0)] * rank
    starts[dim] = first
    counts = [numbers.size(axis) for axis in range(rank)]
    counts[dim] = count
    zeros, strides = [0] * rank, [1] * rank
    strides[dim] = step
    layer = ctx.net.add_slice(source, zeros, zeros, strides)
    layer.set_input(1, numbers.line(starts))
    layer.set_input(2, numbers.line(counts))
    layer.name = f"slice_{node.name}"
    return layer.get_output(0)


def add_select_index(ctx: Any, node: Node, args: Any, kwargs: Any) -> Any:  # noqa: ANN401
    """Add the layers of one ``aten.select.int``.

    Args:
        ctx: Torch-TensorRT's ``ConversionContext``.
        node: The call.
        args: The tensor, the dimension, and the index, a number or TensorRT's tensor.
        kwargs: Empty.

    Returns:
        TensorRT's tensor.
    """
    source, dim, index = args
    source = get_trt_tensor(ctx, source, f"{node.name}_source")
    dim %= len(source.shape)
    numbers = _Numbers(ctx, node.name, source)
    position = ctx.net.add_shuffle(numbers.from_zero(index, numbers.size(dim)))
    position.reshape_dims = trt.Dims()
    position.name = f"index_{node.name}"
    layer = ctx.net.add_gather(source, position.get_output(0), dim)
    layer.name = f"select_{node.name}"
    return layer.get_output(0)


def _arguments(args: Any) -> tuple[Any, int, Any, Any, int]:  # noqa: ANN401
    given = dict(enumerate(args))
    source, start, end = given[0], given.get(2), given.get(3)
    return (
        source,
        given.get(1, 0) % len(source.shape),
        0 if start is None else start,
        sys.maxsize if end is None else end,
        given.get(4, 1),
    )


class _Numbers:
    """Arithmetic of one tensor's sizes; each number is a tensor of one int32."""

    def __init__(self, ctx: Any, name: str, source: Any) -> None:  # noqa: ANN401
        self.ctx = ctx
        self.name = name
        self.added = 0
        self.source = source
        shape = ctx.net.add_shape(source).get_output(0)
        self.shape = cast_trt_tensor(ctx, shape, torch.int32, f"{name}_shape")

    def _label(self) -> str:
        self.added += 1
        return f"{self.name}_number{self.added}"

    def constant(self, number: int) -> Any:  # noqa: ANN401
        """Return a constant."""
        return get_trt_tensor(self.ctx, np.array([number], np.int32), self._label())

    def size(self, dim: int) -> Any:  # noqa: ANN401
        """Return the tensor's size along a dimension."""
        if self.source.shape[dim] >= 0:
            return self.constant(self.source.shape[dim])
        layer = self.ctx.net.add_slice(self.shape, (dim,), (1,), (1,))
        layer.name = self._label()
        return layer.get_output(0)

    def add(self, operation: Any, left: Any, right: Any) -> Any:  # noqa: ANN401
        """Return the result of an elementwise operation."""
        layer = self.ctx.net.add_elementwise(left, right, operation)
        layer.name = self._label()
        return layer.get_output(0)

    def from_zero(self, index: Any, size: Any) -> Any:  # noqa: ANN401
        """Return an index (a number or TensorRT's tensor), plus the size if it is negative."""
        if isinstance(index, int):
            number = self.constant(index)
            return self.add(_Operation.SUM, size, number) if index < 0 else number
        index = cast_trt_tensor(self.ctx, index, torch.int32, self._label())
        line = self.ctx.net.add_shuffle(index)
        line.reshape_dims = (1,)
        line.name = self._label()
        number = line.get_output(0)
        negative = self.add(_Operation.LESS, number, self.constant(0))
        wrapped = self.add(_Operation.SUM, number, size)
        layer = self.ctx.net.add_select(negative, wrapped, number)
        layer.name = self._label()
        return layer.get_output(0)

    def bounded(self, index: Any, size: Any) -> Any:  # noqa: ANN401
        """Return a start or an end, counted from 0 and within the size."""
        if isinstance(index, int) and index in (0, sys.maxsize):
            return size if index else self.constant(0)
        number = self.from_zero(index, size)
        if not isinstance(index, int) or index < 0:
            number = self.add(_Operation.MAX, number, self.constant(0))
        if not isinstance(index, int) or index > 0:
            number = self.add(_Operation.MIN, number, size)
        return number

    def line(self, numbers: list[Any]) -> Any:  # noqa: ANN401
        """Join the numbers into one tensor."""
        layer = self.ctx.net.add_concatenation(numbers)
        layer.axis = 0
        layer.name = self._label()
        return layer.get_output(0)
