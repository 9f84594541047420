"""What several elements are scattered to: sums, products and extrema, by a matrix of places.

TensorRT's scatter layers write, and keep the last of what meets. Torch-TensorRT 2.13 adds two
layers for each element along the dimension: 1,024 edges of a graph are an engine of 266 MB. Here
a matrix says which element goes where (``[places, elements]``); rows that go to their places as a
whole are multiplied by it, others chosen by it and reduced.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import torch
from torch import Tensor
from torch.fx import GraphModule, Node
from torch.fx.experimental.symbolic_shapes import statically_known_true

from trt_et.graph.insertion import insert_call
from trt_et.graph.symbolic_shapes import shape_range

__all__ = [
    "SCATTER_REDUCTIONS",
    "is_accumulating",
    "scatter_add_to_index_add",
    "scatter_reduce",
    "unsupported_scatter_reason",
]

aten = torch.ops.aten

# Elements of the matrix, or of what it chooses from. 64 MiB in float32.
_LARGEST: Final = 1 << 24

_REDUCTIONS: Final[dict[str, tuple[Callable[..., Tensor], Callable[..., Tensor], float]]] = {
    "sum": (torch.add, lambda x: x.sum(-1), 0),
    "mean": (torch.add, lambda x: x.sum(-1), 0),
    "prod": (torch.mul, lambda x: x.prod(-1), 1),
    "amax": (torch.maximum, lambda x: x.amax(-1), -math.inf),
    "amin": (torch.minimum, lambda x: x.amin(-1), math.inf),
}


def scatter_reduce(
    x: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True
) -> Any:  # noqa: ANN401
    """``aten.scatter_reduce.two``.

    Args:
        x: What is reduced into; it has a dimension at least.
        dim: The dimension that the index counts along.
        index: Places, of no larger shape than ``src``, and but for ``dim`` than ``x``.
        src: What is scattered.
        reduce: ``sum``, ``mean`` (of floats), ``prod``, ``amax`` or ``amin``.
        include_self: Whether what is there counts.

    Returns:
        A tensor like ``x``; ``NotImplemented`` for what is not listed here.
    """
    whole = not x.dtype.is_floating_point
    if reduce not in _REDUCTIONS or x.dim() == 0 or (whole and reduce == "mean"):
        return NotImplemented
    merge, collapse, neutral = _REDUCTIONS[reduce]
    if whole:
        limits = torch.iinfo(x.dtype)
        neutral = int(min(max(neutral, limits.min), limits.max))
    for place, size in enumerate(index.shape):
        if not statically_known_true(size == src.shape[place]):
            if not isinstance(size, int):
                return NotImplemented
            src = src.narrow(place, 0, size)
    src = src.movedim(dim, -1)
    target, index = x.movedim(dim, -1), index.movedim(dim, -1)
    places = torch.arange(target.shape[-1], dtype=index.dtype, device=x.device)
    member = places.unsqueeze(-1) == index.unsqueeze(-2)
    scattered = collapse(torch.where(member, src.unsqueeze(-2), neutral)).to(x.dtype)
    count = member.sum(-1)
    # The index may be smaller than what it writes to.
    short = [target.shape[d] - scattered.shape[d] for d in reversed(range(target.dim()))]
    if not all(statically_known_true(amount == 0) for amount in short):
        if not all(isinstance(amount, int) for amount in short):
            return NotImplemented
        pads = [size for amount in short for size in (0, amount)]
        scattered = torch.nn.functional.pad(scattered, pads, value=neutral)
        count = torch.nn.functional.pad(count, pads)
    merged = merge(target, scattered) if include_self else scattered
    if reduce == "mean":
        merged = merged / (count + int(include_self)).clamp(min=1).to(x.dtype)
    return torch.where(count > 0, merged, target).movedim(-1, dim)


def _scatter_add(x: Tensor, dim: int, index: Tensor, src: Tensor) -> Any:  # noqa: ANN401
    return scatter_reduce(x, dim, index, src, "sum")


def _index_add(x: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: float = 1) -> Tensor:
    """Whole rows: a product with the matrix. Negative indices count from the end.

    A row that is not finite makes all places so.
    """
    target = x.movedim(dim, 0)
    rows = source.movedim(dim, 0).reshape(source.shape[dim], -1)
    number = target.shape[0]
    index = torch.where(index < 0, index + number, index)
    places = torch.arange(number, dtype=index.dtype, device=x.device)
    member = places.unsqueeze(-1) == index
    added = member.to(x.dtype) @ rows
    return (target + alpha * added.reshape(target.shape)).movedim(0, dim)


SCATTER_REDUCTIONS: Final[dict[Any, Callable[..., Any]]] = {
    aten.scatter_add.default: _scatter_add,
    aten.scatter_reduce.two: scatter_reduce,
    aten.index_add.default: _index_add,
}


def unsupported_scatter_reason(node: Node) -> str | None:
    """Why an engine shall not hold such a node of plain ATen; None for all others too."""
    if not is_accumulating(node) and node.target not in SCATTER_REDUCTIONS:
        return None
    rows = _whole_rows(node)
    if rows is None and is_accumulating(node):
        return "it adds at several places at once, by a mask, or integers"
    arguments: Any = rows or node.args
    x, dim, index = arguments[:3]
    shape, places = x.meta["val"].shape, index.meta["val"].shape
    if not shape:
        return "Torch-TensorRT cannot do it to a number without dimensions"
    number = math.prod(shape_range(size)[2] for size in (*places, shape[dim]))
    return f"the matrix of its places would have {number} elements" if number > _LARGEST else None


def is_accumulating(node: Node) -> bool:
    """Whether a node is an ``index_put`` that adds to what is there."""
    if node.target is not aten.index_put.default:
        return False
    return bool(node.args[3] if len(node.args) > 3 else node.kwargs.get("accumulate", False))


def scatter_add_to_index_add(module: GraphModule) -> None:
    """Write what adds whole rows as ``index_add``.

    Args:
        module: Plain ATen, with ``val`` metadata; changed in place.
    """
    for node in list(module.graph.nodes):
        rows = _whole_rows(node) if node.op == "call_function" else None
        if rows is not None:
            x, dim, index, source = rows
            line = insert_call(node, aten.reshape.default, index, [-1])
            added = insert_call(node, aten.index_add.default, x, dim, line, source)
            node.replace_all_uses_with(added)
            node.graph.erase_node(node)
    module.graph.eliminate_dead_code()
    module.recompile()


def _whole_rows(node: Node) -> tuple[Node, int, Node, Node] | None:
    """What is added to, the dimension, where along it, and the rows; None for any other node.

    The places have all of their elements in one dimension.
    """
    arguments: Any = node.args
    index: Any
    if is_accumulating(node):
        x, indices, source = arguments[:3]
        given = [(dim, index) for dim, index in enumerate(indices) if index is not None]
        if len(given) != 1:
            return None
        dim, index = given[0]
        if index.meta["val"].dtype not in (torch.int32, torch.int64):
            return None
        count = index.meta["val"].shape
    elif node.target is aten.scatter_add.default:
        x, dim, broadcast, source = arguments
        if not isinstance(broadcast, Node) or broadcast.target is not aten.expand.default:
            return None
        index = broadcast.args[0]
        shape = list(index.meta["val"].shape)
        count = shape[dim:][:1]
        if len(shape) != broadcast.meta["val"].dim() or [s for s in shape if s != 1] != count:
            return None
    else:
        return None
    if not isinstance(x, Node) or not isinstance(source, Node):
        return None
    value = x.meta["val"]
    wanted = list(value.shape)
    wanted[dim] = count[0] if len(count) == 1 else None
    if not value.is_floating_point() or str(wanted) != str(list(source.meta["val"].shape)):
        return None
    return x, dim, index, source
