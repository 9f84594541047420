"""Weights of 4 bits with a scale for each group of a row: TensorRT's block-wise dequantize layer.

torchao stores such weights as int8 constants and computes ``(weight - zero) * scale`` on groups.
"""

from __future__ import annotations

import logging
from typing import Any, Final

import torch
from torch.fx import GraphModule, Node

from trt_et.conversion.layers import Layers
from trt_et.conversion.operator import Operator
from trt_et.errors import BuilderError
from trt_et.graph.insertion import insert_call
from trt_et.graph.operators import RESHAPES
from trt_et.ops.quantize import is_weight_cast

aten = torch.ops.aten
_log = logging.getLogger(__name__)

_GROUPS: Final = (32, 64, 128)  # TensorRT-RTX 1.5 keeps 4 bits in groups of these sizes.
_LOWEST, _HIGHEST = -8, 7


def dequantize_groups(weight: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Dequantize 4-bit numbers to floats; TensorRT has a layer for it.

    Args:
        weight: int8 from -8 to 7, ``[rows, columns]``.
        scale: ``[rows, groups]``; the result has its dtype.
    """
    groups = weight.reshape(*scale.shape, -1).to(scale.dtype)
    return (groups * scale.unsqueeze(-1)).reshape(weight.shape)


def keep_weights_int4(node: Node) -> None:
    """Dequantize groups of 4-bit weights by one call; warn if weights stay int8."""
    module: Any = node.graph.owning_module
    parts = _match(module, node)
    if parts is None:
        return
    reason = _refusal(module, *parts)
    if reason is not None:
        _log.warning("a 4-bit weight (%s) is stored as int8: %s", node.name, reason)
        return
    _log.info("a weight (%s) is stored as 4 bits with scales of groups", node.name)
    weight, _, scale = parts
    for result in list(node.users):
        result.replace_all_uses_with(insert_call(result, dequantize_groups, weight, scale))


_Found = tuple[Node, Node | None, Node]


def _match(module: GraphModule, product: Node) -> _Found | None:
    """Return the constants (weight, zero points, scales) of ``(weight - zero) * scale``."""
    factors: tuple[Any, ...] = product.args
    for shifted, factor in (factors, factors[::-1]):
        cast, zero, scale = shifted, None, _constant(factor)
        if isinstance(shifted, Node) and shifted.target is aten.sub.Tensor:
            terms: tuple[Any, ...] = shifted.args
            cast, zero = terms[0], _constant(terms[1])
            if zero is None:
                continue
        if scale is None or not isinstance(cast, Node) or not is_weight_cast(cast):
            continue
        weight = _constant(cast)
        if weight is None or not _is_grouped(cast, weight, scale):
            continue
        values = getattr(module, str(weight.target))
        if int(values.min()) >= _LOWEST and int(values.max()) <= _HIGHEST:
            put_together = all(
                user.target in RESHAPES and _shape(user) == _shape(weight) for user in product.users
            )
            return (weight, zero, scale) if put_together else None
    return None


def _refusal(module: GraphModule, weight: Node, zero: Node | None, scale: Node) -> str | None:
    """Return why TensorRT cannot keep the 4 bits; None if it can."""
    if zero is not None and bool(getattr(module, str(zero.target)).any()):
        return "its groups have zero points; TensorRT's have none"
    group = _shape(weight)[1] // _shape(scale)[1]
    if group not in _GROUPS:
        return f"it has groups of {group}; expected one of {_GROUPS}"
    return None


def _is_grouped(cast: Node, weight: Node, scale: Node) -> bool:
    grouped, whole, scales = _shape(cast), _shape(weight), _shape(scale)
    return (
        len(grouped) == 3
        and len(whole) == len(scales) == 2
        and grouped[:2] == scales
        and grouped[0] == whole[0]
        and weight.meta["val"].dtype is torch.int8
        and cast.meta["val"].dtype == scale.meta["val"].dtype
    )


def _constant(value: Any) -> Node | None:  # noqa: ANN401
    """Return the constant under a value's reshapes and casts; None for any other value."""
    while isinstance(value, Node) and value.target in (*RESHAPES, aten._to_copy.default):
        value = value.args[0]
    return value if isinstance(value, Node) and value.op == "get_attr" else None


def _shape(node: Node) -> tuple[int, ...]:
    return tuple(node.meta["val"].shape)


def add_layers(layers: Layers, args: Any, kwargs: Any) -> Any:  # noqa: ANN401
    """Add a constant of 4 bits and TensorRT's block-wise dequantize layer.

    Raises:
        BuilderError: TensorRT refuses the layer.
    """
    trt = layers.trt
    weight, scale = (torch.as_tensor(argument) for argument in args)
    packed = pack_int4(weight)
    # Keeps the memory until the engine is built.
    layers.ctx.record_weight(f"{layers.node.name}_weight", packed)
    values = trt.Weights(trt.int4, packed.data_ptr(), weight.numel())
    constant = layers.result(layers.net.add_constant(tuple(weight.shape), values), "weight")
    scales = layers.tensor(scale, "scale", dtype=scale.dtype)
    layer = layers.net.add_dequantize(constant, scales, scales.dtype)
    if layer is None:
        raise BuilderError(
            f"TensorRT {trt.__version__} refuses to dequantize the 4-bit weight of "
            f"{layers.node.name}; leave the node to the CPU (excluded_ops=...)"
        )
    return layers.result(layer, "dequantize")


def pack_int4(weight: torch.Tensor) -> torch.Tensor:
    """Pack two numbers into each byte, the first in the lower half.

    Args:
        weight: int8 from -8 to 7, an even number of them.
    """
    pairs = weight.contiguous().reshape(-1, 2).to(torch.uint8) & 0xF
    return pairs[:, 0] | (pairs[:, 1] << 4)


GROUPED_WEIGHTS: Final = Operator("4-bit weights", (aten.mul.Tensor,), rewrite=keep_weights_int4)
DEQUANTIZE_GROUPS: Final = Operator("dequantize_groups", (dequantize_groups,), add_layer=add_layers)
