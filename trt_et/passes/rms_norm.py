"""Replace normalizations that a model writes out by ``aten.rms_norm``.

Most language models write out ``x * rsqrt(mean(x ** 2) + eps) * weight``: six operators, and two of
them in each layer. All passes of ExecuTorch visit each operator.
"""

from __future__ import annotations

from typing import Any, Final

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from trt_et.graph.arguments import is_written_between, named_arguments
from trt_et.graph.subgraphs import copied_module

aten = torch.ops.aten

_RSQRT: Final = aten.rsqrt.default
_ASSERTION: Final = aten._assert_tensor_metadata.default


def use_rms_norm(program: ExportedProgram) -> ExportedProgram:
    """Replace float32 normalizations over the last dimension, with their weights."""
    if not any(map(_normalized, program.graph.find_nodes(op="call_function", target=_RSQRT))):
        return program
    module = copied_module(program.graph_module)
    for rsqrt in module.graph.find_nodes(op="call_function", target=_RSQRT):
        if found := _normalized(rsqrt):
            source, eps = found
            (product,) = rsqrt.users
            result, weight = _scaled(product, source.meta["val"].shape[-1])
            _drop_assertions(product, result)
            # The result keeps its name, which may be an output's, and its place after its inputs.
            result.target = aten.rms_norm.default
            result.args = (source, [source.meta["val"].shape[-1]], weight, eps)
    module.graph.eliminate_dead_code()
    return program._update(module, program.graph_signature)


def _normalized(rsqrt: Node) -> tuple[Node, float] | None:
    """Return the tensor that is normalized by a root's only user, and the epsilon; or None."""
    add = _only_input(rsqrt, aten.add.Tensor, aten.add.Scalar)
    mean = add and _only_input(add, aten.mean.dim)
    square = mean and _only_input(mean, aten.mul.Tensor, aten.pow.Tensor_Scalar)
    if add is None or mean is None or square is None or len(rsqrt.users) != 1:
        return None
    source: Any = square.args[0]
    eps: Any = add.args[1]
    if square.args[1] != (source if square.target is aten.mul.Tensor else 2):
        return None
    (product,) = rsqrt.users
    shape, named = source.meta["val"].shape, named_arguments(mean)
    is_normalization = (
        product.target is aten.mul.Tensor
        and set(product.args) == {source, rsqrt}
        and all(map(_is_float32, (source, mean)))
        and len(shape) > 0
        and isinstance(shape[-1], int)
        and named["dim"] in ([-1], [len(shape) - 1])
        and named["keepdim"]
        and isinstance(eps, float | int)
        and not add.kwargs
        and not is_written_between(square, product)
    )
    return (source, float(eps)) if is_normalization else None


def _only_input(node: Node, *targets: object) -> Node | None:
    """Return the only input of a call if it calls one of ``targets`` for this call alone."""
    inputs = node.all_input_nodes
    is_alone = len(inputs) == 1 and len(inputs[0].users) == 1
    return inputs[0] if is_alone and inputs[0].target in targets else None


def _scaled(product: Node, size: int) -> tuple[Node, Node | None]:
    """Return the call that multiplies a product by a weight of ``size`` numbers, and the weight.

    Without one, return the product and None.
    """
    last = product
    while (user := _only_user(last)) and user.target is aten.to.dtype and _is_float32(user):
        last = user
    if user is None or user.target is not aten.mul.Tensor or is_written_between(product, user):
        return product, None
    weight: Any = user.args[1] if user.args[0] is last else user.args[0]
    is_weight = isinstance(weight, Node) and _is_float32(weight) and weight.op == "placeholder"
    return (user, weight) if is_weight and weight.meta["val"].shape == (size,) else (product, None)


def _only_user(node: Node) -> Node | None:
    """Return the only user of a node that takes its values."""
    users = [each for each in node.users if each.target is not _ASSERTION]
    return users[0] if len(users) == 1 else None


def _drop_assertions(product: Node, result: Node) -> None:
    """Drop torch.export's assertions of dtypes on the way from a product to the result.

    They would keep the product alive.
    """
    node: Node | None = product
    while node is not None and node is not result:
        for user in list(node.users):
            if user.target is _ASSERTION:
                node.graph.erase_node(user)
        node = _only_user(node)


def _is_float32(node: Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.dtype is torch.float32
