"""Type promotion as explicit casts; casts, and ``where`` in the dtype that torch has.

Torch promotes: an integer plus 2.5, or its logarithm, is a float. Torch-TensorRT 2.13 converts the
2.5 to an integer of the tensor's dtype (``x % 2.5`` becomes ``x % 2``, ``x == 2.5`` holds for 2),
and leaves int64 unchanged, although TensorRT has no logarithm of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final, TypeVar

import torch
from torch.fx import Node

from trt_et.conversion.layers import Layers
from trt_et.conversion.operator import Operator
from trt_et.graph.insertion import insert_call

aten = torch.ops.aten
_Argument = TypeVar("_Argument")

# These cast integers to a float, and compute a float from it.
_OF_FLOATS: Final = (
    *(aten.acos, aten.acosh, aten.asin, aten.asinh, aten.atan, aten.atanh, aten.cos, aten.cosh),
    *(aten.sin, aten.sinh, aten.tan, aten.tanh, aten.exp, aten.exp2, aten.expm1, aten.log),
    *(aten.log10, aten.log1p, aten.log2, aten.erf, aten.erfc, aten.sqrt, aten.rsqrt),
    *(aten.reciprocal, aten.sigmoid, aten.logit),
)
_TESTS: Final = (aten.isinf, aten.isnan)
_ROUNDINGS: Final = (aten.ceil, aten.floor, aten.round, aten.trunc)
_ARITHMETIC: Final = (
    *(aten.add, aten.sub, aten.rsub, aten.mul, aten.div, aten.floor_divide, aten.pow),
    *(aten.remainder, aten.fmod, aten.maximum, aten.minimum, aten.atan2),
)
_COMPARISONS: Final = (aten.eq, aten.ne, aten.lt, aten.le, aten.gt, aten.ge)
_CLAMPS: Final = (aten.clamp, aten.clamp_min, aten.clamp_max)
# These take everything in the result's dtype.
_OF_RESULTS: Final = (aten.sum, aten.prod, aten.mean, *_CLAMPS)
# Their converters cast int32 to float32, which cannot hold every int32.
_EXACT: Final = (
    *(aten.amax, aten.amin, aten.max, aten.min, aten.argmax, aten.argmin),
    aten.neg,
)


def promote(node: Node) -> Node | None:
    """Cast the arguments to the dtype that torch computes in."""
    return _RULES[node.target.overloadpacket](node) if _dtype(node) is not None else None  # type: ignore[union-attr]


def _dtype(argument: object) -> torch.dtype | None:
    value = argument.meta.get("val") if isinstance(argument, Node) else None
    return value.dtype if isinstance(value, torch.Tensor) else None


def cast(before: Node, argument: _Argument, dtype: torch.dtype) -> _Argument:
    """Insert a cast of an argument, unless it is a number or has the dtype."""
    if _dtype(argument) in (None, dtype):
        return argument
    return insert_call(before, aten._to_copy.default, argument, dtype=dtype)  # type: ignore[return-value]


def _is_long(argument: object) -> bool:
    return isinstance(argument, int) and not -(1 << 31) <= argument < 1 << 31


def _widen_long_integers(node: Node, dtype: torch.dtype) -> None:
    """Turn integers beyond int32 into floats or tensors: converters cast any integer to int32.

    Torch computes the call in ``dtype``.
    """
    if not any(map(_is_long, node.args)):
        return
    if dtype.is_floating_point:
        node.args = tuple(float(a) if _is_long(a) else a for a in node.args)  # type: ignore[arg-type]
    elif dtype == torch.int64:
        node.args = tuple(
            insert_call(node, aten.full.default, [], argument, dtype=dtype)
            if isinstance(argument, int)
            else argument
            for argument in node.args
        )
        packet: Any = node.target.overloadpacket  # type: ignore[union-attr]
        name = node.target._overloadname  # type: ignore[union-attr]
        name = "Tensor" if packet in _CLAMPS else name.replace("Scalar", "Tensor")
        node.target = getattr(packet, name)


def _cast_result(node: Node, dtype: torch.dtype) -> Node:
    """Compute a node again in the dtype of its new arguments, and cast the result to ``dtype``."""
    result = insert_call(node, node.target, *node.args, **node.kwargs)
    return cast(node, result, dtype)


def _is_integer(argument: object) -> bool:
    dtype = _dtype(argument)
    return dtype is not None and not dtype.is_floating_point


def _of_floats(node: Node) -> None:
    if _is_integer(node.args[0]):
        node.args = (cast(node, node.args[0], node.meta["val"].dtype), *node.args[1:])


def _test(node: Node) -> None:
    if _is_integer(node.args[0]):
        node.args = (cast(node, node.args[0], torch.float32),)


def _rounding(node: Node) -> Any:  # noqa: ANN401
    unchanged = _is_integer(node.args[0]) and len(node.args) == 1 and not node.kwargs
    return node.args[0] if unchanged else None


def _sign(node: Node) -> Any:  # noqa: ANN401
    return node.args[0] if _dtype(node.args[0]) == torch.bool else None


def _of_two(node: Node) -> Node | None:
    if len(node.args) < 2:
        return None
    pair: list[Any] = [
        argument.meta.get("val") if isinstance(argument, Node) else argument
        for argument in node.args[:2]
    ]
    if not all(isinstance(one, torch.Tensor | int | float) for one in pair):
        return None
    common = torch.result_type(*pair)
    result = node.meta["val"].dtype
    if node.target.overloadpacket not in _COMPARISONS and not common.is_floating_point:  # type: ignore[union-attr]
        # A quotient of integers.
        common = result if result.is_floating_point else common
    if common == torch.bool:
        common = torch.int32  # TensorRT has no arithmetic of booleans.
    first, second = (cast(node, argument, common) for argument in node.args[:2])
    node.args = (first, second, *node.args[2:])
    _widen_long_integers(node, common)
    if result == torch.bool and node.target.overloadpacket in _ARITHMETIC:  # type: ignore[union-attr]
        return _cast_result(node, result)
    return None


def _of_results(node: Node) -> Node | None:
    result = node.meta["val"].dtype
    dtype = torch.int32 if result == torch.bool else result  # TensorRT compares no booleans.
    node.args = tuple(cast(node, argument, dtype) for argument in node.args)
    if result == torch.bool:
        return _cast_result(node, result)
    if node.target.overloadpacket in _CLAMPS:  # type: ignore[union-attr]
        _widen_long_integers(node, dtype)
    return None


def _hardtanh(node: Node) -> None:
    """Clamp instead: the layer takes only floats, and its bounds are finite."""
    x, *given = node.args
    bounds: dict[str, Any] = {"min_val": -1, "max_val": 1}
    bounds |= dict(zip(bounds, given, strict=False)) | node.kwargs
    if _is_integer(x) or not all(map(math.isfinite, bounds.values())):
        node.target, node.args, node.kwargs = aten.clamp.default, (x, *bounds.values()), {}


def _exact(node: Node) -> Node | None:
    # TensorRT reduces no booleans.
    wider = {torch.int32: torch.int64, torch.bool: torch.int32}
    dtype = _dtype(node.args[0])
    if dtype not in wider:
        return None
    node.args = (cast(node, node.args[0], wider[dtype]), *node.args[1:])
    return _cast_result(node, node.meta["val"].dtype)


_RULES: Final[dict[Any, Callable[[Node], Node | None]]] = {
    **dict.fromkeys(_OF_FLOATS, _of_floats),
    **dict.fromkeys(_TESTS, _test),
    **dict.fromkeys(_ROUNDINGS, _rounding),
    **dict.fromkeys((*_ARITHMETIC, *_COMPARISONS), _of_two),
    **dict.fromkeys(_OF_RESULTS, _of_results),
    **dict.fromkeys(_EXACT, _exact),
    aten.hardtanh: _hardtanh,
    aten.sign: _sign,
}

TYPE_PROMOTION: Final = Operator(
    "type promotion",
    frozenset(getattr(packet, name) for packet in _RULES for name in packet.overloads()),
    rewrite=promote,
    upstream="type_promotion",
)


def add_cast(layers: Layers, args: Any, kwargs: Any) -> Any:  # noqa: ANN401
    """Add the layer of one ``aten._to_copy``; none if the tensor has the dtype.

    Torch-TensorRT 2.13 and 2.14 have two converters; the one for a cast of an input that is
    returned takes static shapes only.
    """
    tensor = layers.tensor(args[0], "input")
    return layers.cast(tensor, kwargs.get("dtype", tensor.dtype), "cast")


TO_COPY: Final = Operator("_to_copy", (aten._to_copy.default,), add_layer=add_cast)


def add_select(layers: Layers, args: Any, kwargs: Any) -> Any:  # noqa: ANN401
    """Add the layer of one ``aten.where.self``.

    Torch-TensorRT 2.13 knows float32 and float16 and makes int32 of all else: bfloat16 loses its
    fraction, int64 its upper half.
    """
    from torch_tensorrt.dynamo.conversion.converter_utils import prepend_ones

    value = layers.node.meta["val"]
    # TensorRT selects between everything but these.
    dtype = torch.int32 if value.dtype == torch.uint8 else value.dtype
    tensors = []
    for name, argument, wanted in zip(
        ("condition", "chosen", "other"), args, (torch.bool, dtype, dtype), strict=True
    ):
        tensor = layers.tensor(argument, name, min_rank=0)
        tensor = layers.cast(tensor, wanted, f"{name}_cast")
        missing = value.dim() - len(tensor.shape)
        label = f"{layers.node.name}_{name}_ones"
        tensors.append(prepend_ones(layers.ctx, tensor, label, missing) if missing else tensor)
    selected = layers.result(layers.net.add_select(*tensors), "select")
    return layers.cast(selected, value.dtype, "result")


WHERE: Final = Operator("where", (aten.where.self,), add_layer=add_select, upstream="where")
