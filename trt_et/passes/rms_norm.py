"""Replace normalizations that a model writes out by ``aten.rms_norm``.

Most language models write out ``x * rsqrt(mean(x ** 2) + eps) * weight``: six operators, and two of
them in each layer. All passes of ExecuTorch visit each operator.
"""

from __future__ import annotations

from typing import Final

import torch
from torch._prims_common import is_contiguous_or_false
from torch.export import ExportedProgram
from torch.fx import Graph, Node

from trt_et.graph.arguments import is_written_between, named_arguments
from trt_et.graph.subgraphs import edited

aten = torch.ops.aten

RMS_NORM: Final = aten.rms_norm.default
_RSQRT: Final = aten.rsqrt.default
_ASSERTION: Final = aten._assert_tensor_metadata.default


def use_rms_norm(program: ExportedProgram) -> ExportedProgram:
    """Replace float32 normalizations over the last dimension, with their weights."""
    if not any(map(_normalized, program.graph.find_nodes(op="call_function", target=_RSQRT))):
        return program
    return edited(program, _use)


def _use(graph: Graph) -> None:
    for rsqrt in graph.find_nodes(op="call_function", target=_RSQRT):
        if normalized := _normalized(rsqrt):
            source, eps = normalized
            (product,) = rsqrt.users
            result, weight = _scaled(product, source.meta["val"].shape[-1])
            _drop_assertions(product, result)
            # The result keeps its name, which may be an output's, and its place after its inputs.
            result.target = RMS_NORM
            result.args = (source, [source.meta["val"].shape[-1]], weight, eps)
    graph.eliminate_dead_code()


def _normalized(rsqrt: Node) -> tuple[Node, float] | None:
    """Return the tensor that is normalized by a root's only user, and the epsilon; or None."""
    add = _only_input(rsqrt, aten.add.Tensor, aten.add.Scalar)
    mean = add and _only_input(add, aten.mean.dim)
    square = mean and _only_input(mean, aten.mul.Tensor, aten.pow.Tensor_Scalar)
    if add is None or mean is None or square is None or len(rsqrt.users) != 1:
        return None
    source, factor = list(named_arguments(square).values())[:2]
    (product,), named, addition = rsqrt.users, named_arguments(mean), named_arguments(add)
    if factor != (source if square.target is aten.mul.Tensor else 2):
        return None
    if product.target is not aten.mul.Tensor or set(product.all_input_nodes) != {source, rsqrt}:
        return None
    is_normalization = (
        all(map(_is_float32, (source, mean)))
        and _has_rows(source.meta["val"])
        and named["dim"] in ([-1], [source.meta["val"].dim() - 1])
        and named["keepdim"]
        and isinstance(addition["other"], float | int)
        and addition["alpha"] == 1
        and not is_written_between(square, product)
    )
    return (source, float(addition["other"])) if is_normalization else None


def _has_rows(value: torch.Tensor) -> bool:
    """Return whether a tensor surely is contiguous, with rows of a known size.

    The result of ``rms_norm`` is contiguous. The result of a product has the strides of its
    factors, and a later ``view`` may need these strides.
    """
    return value.dim() > 0 and isinstance(value.shape[-1], int) and is_contiguous_or_false(value)


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
    others = [each for each in user.all_input_nodes if each is not last]
    if len(others) == 1 and others[0].op == "placeholder" and _is_float32(others[0]):
        # A dynamic size must not be compared: the answer would make it a number.
        shape = others[0].meta["val"].shape
        if len(shape) == 1 and isinstance(shape[0], int) and shape[0] == size:
            return user, others[0]
    return product, None


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
