"""Scatters whose source has the shape of the index, as TensorRT's layer requires."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch.fx import Node

from trt_et.conversion.operator import Operator
from trt_et.graph.insertion import insert_call, insert_size

aten = torch.ops.aten


def into_number(node: Node) -> str | None:
    """Refuse a tensor without dimensions: TensorRT takes the layer, but builds no engine of it."""
    args: Any = node.args
    if args[0].meta["val"].dim() == 0:
        return "TensorRT builds no engine that scatters into a tensor without dimensions"
    return None


def fit_source(node: Node) -> None:
    """Cut the source to the shape of the index, or expand a scattered number to a tensor.

    Torch-TensorRT 2.13 passes a larger source unchanged, and turns an integer into a float64.
    """
    source, dim, index, values = node.args[:4]
    if not isinstance(index, Node) or not isinstance(source, Node):
        return
    wanted = index.meta["val"].shape
    if node.target is aten.scatter.value:
        if not wanted or not all(isinstance(size, int) for size in wanted):
            return
        dtype = source.meta["val"].dtype
        values = insert_call(node, aten.full.default, list(wanted), values, dtype=dtype)
        node.target = aten.scatter.src
    elif isinstance(values, Node):
        for axis, (want, have) in enumerate(zip(wanted, values.meta["val"].shape, strict=True)):
            if str(want) != str(have):
                end = insert_size(node, index, axis)
                values = insert_call(node, aten.slice.Tensor, values, axis, 0, end)
    node.args = (source, dim, index, values)


SCATTER: Final = Operator(
    "scatter",
    (aten.scatter.src, aten.scatter.value),
    unsupported=into_number,
    rewrite=fit_source,
)
