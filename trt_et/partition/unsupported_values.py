"""Checks which tensors an engine can take and return: dtype, shape, layout and origin."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Final

import torch
from executorch.exir.lowered_backend_module import LoweredBackendModule
from torch._ops import OpOverload
from torch.fx import Node

from trt_et.graph.symbolic_shapes import UnboundedDimension, shape_range
from trt_et.ops.quantize import QUANTIZED_DTYPES

DTYPES: Final = frozenset(
    {
        torch.float32,
        torch.float16,
        torch.bfloat16,
        torch.int32,
        torch.int64,
        torch.bool,
    }
)

# Scales may be float64; the engine converts them.
QUANTIZATION_DTYPES: Final = QUANTIZED_DTYPES | {torch.float64}


def unsupported_values(node: Node, dtypes: frozenset[torch.dtype] = DTYPES) -> str | None:
    """Return the reason if no engine can take or return a node's values, else None."""
    values = [_used_results(node)]
    for argument in node.all_input_nodes:
        if argument.op == "get_attr" and not isinstance(argument.meta.get("val"), torch.Tensor):
            return f"its argument {argument.name} is a submodule"
        values.append(argument.meta.get("val"))
    for value in _flatten(values):
        reason = _reason_for_value(value, dtypes)
        if reason is not None:
            return reason
    return None


def draws_random_numbers(node: Node, target: OpOverload) -> bool:
    """Return whether a call draws random numbers when it runs."""
    if torch.Tag.nondeterministic_seeded not in target.tags:
        return False
    # Attention has the tag because of dropout, which is off in eval mode.
    for index, argument in enumerate(target._schema.arguments):
        if argument.name == "dropout_p":
            default = argument.default_value
            given = node.args[index] if index < len(node.args) else default
            return bool(node.kwargs.get("dropout_p", given) != 0)
    return True


def _used_results(node: Node) -> object:
    """Return the results that have users: batch norm has two more, without elements."""
    value = node.meta.get("val")
    if not isinstance(value, tuple | list):
        return value
    picked = [user.args[1] for user in node.users if user.target is operator.getitem]
    return [value[index] for index in picked if isinstance(index, int)]


def _reason_for_value(value: object, dtypes: frozenset[torch.dtype]) -> str | None:
    if value is None:
        return None
    if isinstance(value, torch.SymInt):
        return _reason_for_sizes([value])
    if not isinstance(value, torch.Tensor):
        return f"it takes or returns a {type(value).__name__}"
    if value.dtype not in dtypes:
        if value.dtype in QUANTIZED_DTYPES:
            return f"TensorRT quantizes to {value.dtype}, but does not compute with it"
        if value.dtype == torch.uint8:
            return "TensorRT does not compute with torch.uint8 tensors"
        cure = "; compute in torch.float32: model.float(), dtype=torch.float32"
        is_double = value.dtype is torch.float64
        return f"TensorRT has no {value.dtype} tensors{cure if is_double else ''}"
    reason = _reason_for_sizes(value.shape)
    if reason is not None:
        return reason
    if any(isinstance(size, int) and size == 0 for size in value.shape):
        return "a tensor without elements stays on the CPU"
    if value.layout is not torch.strided:
        return f"TensorRT has no {value.layout} tensors"
    return None


def _reason_for_sizes(sizes: Iterable[int | torch.SymInt]) -> str | None:
    for size in sizes:
        try:
            shape_range(size)
        except UnboundedDimension as error:
            return str(error)
    return None


def _flatten(values: Iterable[object]) -> Iterable[object]:
    for value in values:
        if isinstance(value, tuple | list):
            yield from _flatten(value)
        elif not isinstance(value, LoweredBackendModule):
            yield value
