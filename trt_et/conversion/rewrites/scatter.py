"""Scatters whose source has the shape of the index, as TensorRT's layer requires."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch.fx import GraphModule, Node

from trt_et.graph.insertion import insert_call

__all__ = ["fit_scatter_source"]

aten = torch.ops.aten

_SCATTERS: Final = (aten.scatter.src, aten.scatter_add.default)


def fit_scatter_source(module: GraphModule) -> None:
    """Cut sources to the shape of the index, and expand a scattered number to a tensor.

    Torch-TensorRT 2.13 passes a larger source unchanged, and turns an integer into a float64.

    Args:
        module: Plain ATen, with ``val`` metadata; changed in place.
    """
    for node in list(module.graph.nodes):
        if node.target in _SCATTERS:
            _cut(node)
        elif node.target is aten.scatter.value:
            _write_out(node)
    module.recompile()


def _sizes(argument: Any) -> list[int] | None:  # noqa: ANN401
    sizes = list(argument.meta["val"].shape) if isinstance(argument, Node) else []
    return sizes if sizes and all(isinstance(size, int) for size in sizes) else None


def _cut(node: Node) -> None:
    source, dim, index, values = node.args[:4]
    if not isinstance(index, Node) or not isinstance(values, Node):
        return
    wanted, found = index.meta["val"].shape, values.meta["val"].shape
    for axis, (want, have) in enumerate(zip(wanted, found, strict=True)):
        if str(want) != str(have):
            end = want
            if not isinstance(want, int):
                end = insert_call(node, aten.sym_size.int, index, axis)
            values = insert_call(node, aten.slice.Tensor, values, axis, 0, end)
    node.args = (source, dim, index, values)


def _write_out(node: Node) -> None:
    source, dim, index, number = node.args[:4]
    sizes = _sizes(index)
    if sizes is None or not isinstance(number, int | float) or not isinstance(source, Node):
        return
    dtype = source.meta["val"].dtype
    values = insert_call(node, aten.full.default, sizes, number, dtype=dtype)
    node.target, node.args = aten.scatter.src, (source, dim, index, values)
