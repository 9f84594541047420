"""Biases of products that are split, which TensorRT-RTX does not build."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import torch
from torch.fx import Node

from trt_et.conversion.operator import Operator
from trt_et.graph.arguments import named_arguments
from trt_et.graph.insertion import insert_call, insert_constant

__all__ = ["SPLIT_LINEAR"]

aten = torch.ops.aten

_RESHAPES: Final = (aten.reshape.default, aten.view.default, aten.clone.default)
_PRODUCTS: Final = (aten.mm.default, aten.bmm.default, aten.matmul.default, aten.linear.default)


def add_bias_after_split(node: Node) -> Node | None:
    """Add a bias after the split of a product that is only ever split by its last axis.

    TensorRT-RTX 1.5 fails to build the fused projection of queries, keys and values that most
    decoders have (``linear(x).split(n, -1)``, heads, attention), and some vision transformers
    (``linear(x).reshape(b, n, 3, heads, -1).permute(2, 0, 3, 1, 4)[0]``): "MyelinCheckException:
    logical memory size (384) should be equal to non-opaque payload size (4608)". It folds the
    sliced bias wrongly. The same sums in this order build, with the same single product.
    """
    bias = _bias(node)
    if bias is None:
        return None
    parts = _split(node, bias) or _selected(node, bias)
    for part, piece in parts:
        _add(part, piece)
    return _without_bias(node) if parts else None


def _constant(argument: object) -> torch.Tensor | None:
    if not isinstance(argument, Node) or argument.op != "get_attr":
        return None
    value = getattr(argument.graph.owning_module, str(argument.target), None)
    return value if isinstance(value, torch.Tensor) and value.dim() == 1 else None


def _bias(node: Node) -> torch.Tensor | None:
    """Return the bias that a node adds along its last axis; None if it adds none."""
    if node.target is aten.linear.default and len(node.args) > 2:
        return _constant(node.args[2])
    if node.kwargs.get("alpha", 1) != 1 or node.kwargs.get("beta", 1) != 1:
        return None
    if node.target is aten.addmm.default:
        return _constant(node.args[0])
    if node.target is aten.add.Tensor:
        product = node.args[0]
        if isinstance(product, Node) and product.target in (*_PRODUCTS, *_RESHAPES):
            bias = _constant(node.args[1])
            value = node.meta.get("val")
            if bias is not None and value is not None and bias.shape[0] == value.shape[-1]:
                return bias
    return None


def _parts(node: Node, width: int) -> Iterator[tuple[Node, int, int] | None]:
    """Yield the slices of a node's last axis that users take; None for any other use."""
    for user in node.users:
        value = user.meta.get("val")
        if user.target in _RESHAPES and isinstance(value, torch.Tensor):
            if value.dim() > 0 and value.shape[-1] == width:
                yield from _parts(user, width)
                continue
        elif user.target in (aten.split.Tensor, aten.split_with_sizes.default):
            if _is_last(user, node):
                yield from _results(user, width)
                continue
        elif user.target is aten.slice.Tensor and _is_last(user, node):
            given = named_arguments(user)
            ends = given["start"], given["end"]
            if given["step"] == 1 and all(isinstance(end, int | None) for end in ends):
                low, high, _ = slice(*ends).indices(width)
                yield user, low, high
                continue
        yield None


def _split(node: Node, bias: torch.Tensor) -> list[tuple[Node, torch.Tensor]]:
    """Return the slices of a node's last axis with their biases; none if it has other uses."""
    parts = list(_parts(node, int(bias.shape[0])))
    found = [part for part in parts if part is not None]
    if len(found) < len(parts):
        return []
    return [(part, bias[start:end].clone()) for part, start, end in found]


def _selected(node: Node, bias: torch.Tensor) -> list[tuple[Node, torch.Tensor]]:
    """Return the reshapes that split a node's last axis to select one index, with their biases.

    The bias has the new shape. The list is empty if the node has other uses.
    """
    leading = list(node.meta["val"].shape[:-1])
    found = []
    for user in node.users:
        value = user.meta.get("val")
        if user.target not in _RESHAPES or not isinstance(value, torch.Tensor):
            return []
        trailing = list(value.shape[len(leading) :])
        if list(value.shape[: len(leading)]) != leading or len(trailing) < 2:
            return []
        if not all(isinstance(size, int) for size in trailing):
            return []
        moved = [u for u in user.users if u.target is aten.permute.default] or [user]
        if not any(u.target is aten.select.int for source in moved for u in source.users):
            return []
        found.append((user, bias.reshape(trailing)))
    return found


def _is_last(user: Node, node: Node) -> bool:
    dim = named_arguments(user)["dim"]
    rank = node.meta["val"].dim()
    return isinstance(dim, int) and dim % rank == rank - 1


def _results(split: Node, width: int) -> Iterator[tuple[Node, int, int] | None]:
    given: Any = split.args[1]
    size = given if isinstance(given, int) else None
    sizes = [min(size, width - at) for at in range(0, width, size)] if size else list(given)
    for user in split.users:
        index = user.args[1]
        if isinstance(index, int) and all(isinstance(part, int) for part in sizes):
            start = sum(sizes[:index])
            yield user, start, start + sizes[index]
        else:
            yield None


def _without_bias(node: Node) -> Node:
    if node.target is aten.linear.default:
        node.args = node.args[:2]
        return node
    if node.target is aten.add.Tensor:
        product: Any = node.args[0]
        return product  # type: ignore[no-any-return]
    return insert_call(node, aten.mm.default, *node.args[1:3])


def _add(part: Node, bias: torch.Tensor) -> None:
    constant = insert_constant(part, f"_bias_{part.name}", bias)
    with part.graph.inserting_after(part):
        biased = part.graph.call_function(aten.add.Tensor, (part, constant))
    biased.meta = dict(part.meta)
    part.replace_all_uses_with(biased, delete_user_cb=lambda user: user is not biased)


SPLIT_LINEAR: Final = Operator(
    "split linear",
    (aten.linear.default, aten.addmm.default, aten.add.Tensor),
    rewrite=add_bias_after_split,
    library="tensorrt_rtx",
    needed_with="TensorRT-RTX 1.6",
)
