"""A partition as text: equal text, equal partition, apart from the contents of its weights.

The text says everything that a builder can see: operators, arguments, dtypes, shapes, strides,
ranges of dynamic sizes, bindings. It says nothing that changes from one process to the next:
symbols are numbered in the order in which they appear.
"""

from __future__ import annotations

import enum
import operator
import types
from collections.abc import Mapping
from typing import Any, Final

import torch
from torch._ops import OpOverload
from torch.fx import Node

from trt_et.lowering.lowered_partition import LoweredPartition

__all__ = ["NotSerializable", "SymbolNames", "partition_text", "target_text", "value_text"]

_PLAIN: Final = (bool, int, float, complex, str, bytes, type(None))
_TORCH: Final = (torch.dtype, torch.device, torch.layout, torch.memory_format)


class NotSerializable(ValueError):
    """A value has no text that is the same in every process."""


class SymbolNames:
    """Names for the symbols of dynamic sizes: ``s0``, ``s1``.. in order of appearance."""

    def __init__(self) -> None:
        self._names: dict[Any, Any] = {}
        self.facts: list[str] = []

    def expression(self, size: Any) -> str:  # noqa: ANN401
        """A symbolic number, in these names."""
        import sympy

        node = size.node
        symbols = sorted(node.expr.free_symbols, key=self._order)
        for symbol in symbols:
            if symbol not in self._names:
                name = sympy.Symbol(f"s{len(self._names)}", integer=True, positive=True)
                self._names[symbol] = name
                known = node.shape_env.var_to_range.get(symbol)
                hint = node.shape_env.backed_var_to_val.get(symbol)
                bounds = f"{known.lower}..{known.upper}" if known else "?"
                self.facts.append(f"{name} in {bounds} at {hint}")
        return str(node.expr.xreplace(self._names))

    def _order(self, symbol: Any) -> tuple[bool, str]:  # noqa: ANN401
        known = self._names.get(symbol)
        return (known is None, str(known or symbol))


def partition_text(lowered: LoweredPartition) -> str:
    """The text of a partition.

    Raises:
        NotSerializable: It holds something that no text can stand for (a custom object, say).
    """
    symbols = SymbolNames()
    program = lowered.program
    kinds = {
        spec.arg.name: spec.kind.name
        for spec in program.graph_signature.input_specs
        if spec.target is not None
    }
    lines = [repr(binding) for binding in lowered.bindings]
    lines.append(value_text(lowered.profiles, symbols))
    lines += [repr(update) for update in lowered.aliased_outputs]
    for node in program.graph.nodes:
        value = value_text(node.meta.get("val"), symbols)
        call = value_text((node.args, dict(node.kwargs)), symbols)
        what = kinds.get(node.name, "") if node.op == "placeholder" else target_text(node.target)
        lines.append(f"{node.name} = {node.op} {what} {call} : {value}")
    for name, constant in lowered.constants.items():
        if not isinstance(constant, torch.Tensor):
            raise NotSerializable(f"{name} is a {type(constant).__name__}")
        lines.append(f"{name}: {constant.dtype} {list(constant.shape)}")
    return "\n".join([*lines, *symbols.facts])


def target_text(target: Any) -> str:  # noqa: ANN401
    """An operator or function by its full name."""
    if isinstance(target, OpOverload):
        return f"{target._schema.name}.{target._overloadname}"
    if isinstance(target, str):
        return target
    if isinstance(target, types.FunctionType | types.BuiltinFunctionType):
        name = str(getattr(target, "__qualname__", "<"))
        if getattr(operator, name, None) is target:
            return f"operator.{name}"
        if "<" not in name:
            return f"{getattr(target, '__module__', '')}.{name}"
    raise NotSerializable(f"{target!r} has no lasting name")


def value_text(value: Any, symbols: SymbolNames) -> str:  # noqa: ANN401
    """An argument, a result or an option.

    Raises:
        NotSerializable: It is of a type that is not known here.
    """
    if isinstance(value, enum.Enum):
        return f"{type(value).__module__}.{type(value).__qualname__}.{value.name}"
    if type(value) in _PLAIN:
        return repr(value)
    if isinstance(value, _TORCH):
        return str(value)
    if isinstance(value, Node):
        return value.name
    if isinstance(value, torch.Tensor):
        return _tensor_text(value, symbols)
    if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
        return symbols.expression(value)
    if isinstance(value, OpOverload):
        return target_text(value)
    if isinstance(value, slice):
        parts = (value.start, value.stop, value.step)
        return f"slice{value_text(parts, symbols)}"
    if isinstance(value, set | frozenset):
        return "{" + ", ".join(sorted(value_text(item, symbols) for item in value)) + "}"
    if isinstance(value, Mapping):
        items = sorted((value_text(k, symbols), value_text(v, symbols)) for k, v in value.items())
        return "{" + ", ".join(f"{key}: {item}" for key, item in items) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(value_text(item, symbols) for item in value) + "]"
    raise NotSerializable(f"a {type(value).__module__}.{type(value).__qualname__} has no text")


def _tensor_text(value: torch.Tensor, symbols: SymbolNames) -> str:
    if value.layout is not torch.strided:
        raise NotSerializable(f"a tensor of layout {value.layout} has no text")
    sizes = [value_text(size, symbols) for size in value.shape]
    strides = [value_text(stride, symbols) for stride in value.stride()]
    return f"{value.dtype}{sizes}{strides}@{value.device.type}"
