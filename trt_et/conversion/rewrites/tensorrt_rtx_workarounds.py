"""Rewrites of a partition's graph into layers that TensorRT-RTX can build."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.fx import GraphModule, Node

from trt_et.ops.quantize import is_quantize_layer, named_arguments

__all__ = ["add_bias_after_split", "dequantize_before_convolution"]

aten = torch.ops.aten

_RESHAPES = (aten.reshape.default, aten.view.default, aten.clone.default)
_PRODUCTS = (
    aten.linear.default,
    aten.mm.default,
    aten.addmm.default,
    aten.bmm.default,
    aten.baddbmm.default,
    aten.matmul.default,
    aten.scaled_dot_product_attention.default,
)


def add_bias_after_split(module: GraphModule) -> None:
    """Add a bias after the split of a product that is only ever split by its last axis.

    TensorRT-RTX 1.5 fails to build the fused projection of queries, keys and values that most
    decoders have (``linear(x).split(n, -1)``, heads, attention), and some vision transformers
    (``linear(x).reshape(b, n, 3, heads, -1).permute(2, 0, 3, 1, 4)[0]``): "MyelinCheckException:
    logical memory size (384) should be equal to non-opaque payload size (4608)". It folds the
    sliced bias wrongly. The same sums in this order build, with the same single product.

    Args:
        module: Plain ATen, constants as attributes; changed in place.
    """
    for node in list(module.graph.nodes):
        bias = _bias(module, node)
        if bias is None:
            continue
        parts = _split(node, bias) or _selected(node, bias)
        if parts:
            _remove_bias(module, node)
        for part, piece in parts:
            _add(module, part, piece)
    module.graph.eliminate_dead_code()
    module.recompile()


def _constant(module: GraphModule, argument: object) -> torch.Tensor | None:
    if not isinstance(argument, Node) or argument.op != "get_attr":
        return None
    value = getattr(module, str(argument.target), None)
    return value if isinstance(value, torch.Tensor) and value.dim() == 1 else None


def _bias(module: GraphModule, node: Node) -> torch.Tensor | None:
    """Return the bias that a node adds along its last axis; None if it adds none."""
    if node.target is aten.linear.default and len(node.args) > 2:
        return _constant(module, node.args[2])
    if node.kwargs.get("alpha", 1) != 1 or node.kwargs.get("beta", 1) != 1:
        return None
    if node.target is aten.addmm.default:
        return _constant(module, node.args[0])
    if node.target is aten.add.Tensor:
        product = node.args[0]
        products = (aten.mm.default, aten.bmm.default, aten.matmul.default, aten.linear.default)
        if isinstance(product, Node) and product.target in (*products, *_RESHAPES):
            bias = _constant(module, node.args[1])
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
            if _is_last(user, 2, node):
                yield from _results(user, width)
                continue
        elif user.target is aten.slice.Tensor and _is_last(user, 1, node):
            start, end = (list(user.args) + [None] * 5)[2:4]
            step = user.args[4] if len(user.args) > 4 else 1
            if step == 1 and all(isinstance(i, int | None) for i in (start, end)):
                low, high, _ = slice(start, end).indices(width)
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


def _is_last(user: Node, index: int, node: Node) -> bool:
    dim = user.args[index] if len(user.args) > index else user.kwargs.get("dim", 0)
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


def _remove_bias(module: GraphModule, node: Node) -> None:
    if node.target is aten.linear.default:
        node.args = node.args[:2]
        return
    if node.target is aten.addmm.default:
        with module.graph.inserting_before(node):
            plain = module.graph.call_function(aten.mm.default, node.args[1:3])
        plain.meta = dict(node.meta)
    else:
        plain = node.args[0]  # type: ignore[assignment]
    node.replace_all_uses_with(plain)
    module.graph.erase_node(node)


def _add(module: GraphModule, part: Node, bias: torch.Tensor) -> None:
    name = f"_bias_{part.name}"
    module.register_buffer(name, bias)
    with module.graph.inserting_after(part):
        constant = module.graph.get_attr(name)
    with module.graph.inserting_after(constant):
        biased = module.graph.call_function(aten.add.Tensor, (part, constant))
    biased.meta = dict(part.meta)
    constant.meta = {"val": bias}
    part.replace_all_uses_with(biased, delete_user_cb=lambda user: user is not biased)


def dequantize_before_convolution(module: GraphModule) -> None:
    """Replace a dequantize layer before a convolution by a product with the scale.

    TensorRT-RTX 1.5 makes an int8 convolution of a convolution after a dequantize layer, and has no
    kernel for it:
    "MyelinCheckException: cudnn_impl.cpp:89: CHECK(dtype == myelinTypeFloat || ...)". Layers
    between the two that only move numbers do not prevent this, so the search looks through them.
    The convolution is computed in float; its weights stay int8.

    Args:
        module: Plain ATen, constants as attributes; changed in place.
    """
    for node in list(module.graph.nodes):
        if _is_activation_dequantize(node) and _reaches_convolution(node):
            _compute(module, node)
    module.recompile()


def _is_activation_dequantize(node: Node) -> bool:
    if not is_quantize_layer(node.target) or "dequantize_per_tensor" not in str(node.target):
        return False
    source = node.args[0]
    return isinstance(source, Node) and source.op != "get_attr"


def _reaches_convolution(node: Node) -> bool:
    seen: set[Node] = set()
    ahead = [node]
    while ahead:
        current = ahead.pop()
        for user in current.users:
            if user.target is aten.convolution.default and user.args[0] is current:
                return True
            if user not in seen and user.target not in _PRODUCTS and not _quantizes(user):
                seen.add(user)
                ahead.append(user)
    return False


def _quantizes(node: Node) -> bool:
    return is_quantize_layer(node.target) and "dequantize" not in str(node.target)


def _compute(module: GraphModule, node: Node) -> None:
    arguments = named_arguments(node)
    value = node.meta["val"]
    calls: list[tuple[Any, Any, dict[str, Any]]] = [
        (aten._to_copy.default, None, {"dtype": torch.float32}),
        (aten.sub.Tensor, arguments["zero_point"], {}),
        (aten.mul.Tensor, arguments["scale"], {}),
    ]
    if arguments["zero_point"] == 0:
        del calls[1]
    if value.dtype is not torch.float32:
        calls.append((aten._to_copy.default, None, {"dtype": value.dtype}))
    result = arguments["input"]
    with module.graph.inserting_before(node):
        for target, number, keywords in calls:
            args = (result,) if number is None else (result, number)
            result = module.graph.call_function(target, args, keywords)
            result.meta = {**node.meta, "val": value.to(keywords.get("dtype", torch.float32))}
    node.replace_all_uses_with(result)
    module.graph.erase_node(node)
