"""Describe a partition as text: equal text means equal partitions, except for their weights.

The text contains everything that a builder can see: operators, arguments, dtypes, shapes, strides,
ranges of dynamic sizes, bindings. It is the same in every process: symbols are numbered in order
of appearance.
"""

from __future__ import annotations

import enum
import hashlib
import operator
import types
from collections.abc import Mapping
from typing import Any, Final

import torch
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx import Node, map_arg

from trt_et.engine_program.program import EngineProgram
from trt_et.graph.fragment import Fragment

_PLAIN: Final = (bool, int, float, complex, str, bytes, type(None))
_LISTED: Final = 64
_TORCH: Final = (torch.dtype, torch.device, torch.layout, torch.memory_format)


class NotSerializable(ValueError):
    """A value has no text that is the same in every process."""


class SymbolNames:
    """Names for the symbols of dynamic sizes: ``s0``, ``s1``.. in order of appearance."""

    def __init__(self) -> None:
        self._names: dict[Any, Any] = {}
        self.facts: list[str] = []

    def expression(self, size: Any) -> str:  # noqa: ANN401
        """Return a symbolic number with these names."""
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


def partition_text(asked: EngineProgram) -> str:
    """Return the text of a partition.

    Raises:
        NotSerializable: It contains a value without a stable text, such as a custom object.
    """
    symbols = SymbolNames()
    program = asked.exported
    kinds = {
        spec.arg.name: spec.kind.name
        for spec in program.graph_signature.input_specs
        if spec.target is not None
    }
    lines = [repr(binding) for binding in asked.bindings]
    lines.append(value_text(asked.profiles, symbols))
    lines += [repr(update) for update in asked.aliased_outputs]
    for node in program.graph.nodes:
        value = value_text(node.meta.get("val"), symbols)
        call = value_text((node.args, dict(node.kwargs)), symbols)
        what = kinds.get(node.name, "") if node.op == "placeholder" else target_text(node.target)
        lines.append(f"{node.name} = {node.op} {what} {call} : {value}")
    for name, constant in asked.constants.items():
        if not isinstance(constant, torch.Tensor):
            raise NotSerializable(f"{name} is a {type(constant).__name__}")
        lines.append(f"{name}: {constant.dtype} {list(constant.shape)}")
    return "\n".join([*lines, *symbols.facts])


def fragment_text(fragment: Fragment) -> str:
    """Return the text of a fragment: equal text, equal conversion.

    Integer constants are part of it, since converters look at indices; the values of floating-point
    weights are not.

    Raises:
        NotSerializable: It contains a value without a stable text.
    """
    symbols = SymbolNames()
    numbers: dict[Node, int] = {}
    lines = []
    for source in fragment.sources:
        numbers[source] = len(numbers)
        what = source.op if source not in fragment.constants else "constant"
        value = value_text(source.meta.get("val"), symbols)
        lines.append(f"{what} {value}{_numbers_text(fragment.constants.get(source))}")
    returned = set(fragment.outputs)
    for call in fragment.calls:
        arguments = map_arg((call.args, dict(call.kwargs)), lambda node: f"%{numbers[node]}")
        numbers[call] = len(numbers)
        value = value_text(call.meta.get("val"), symbols)
        line = f"{target_text(call.target)} {value_text(arguments, symbols)} : {value}"
        lines.append(f"return {line}" if call in returned else line)
    return "\n".join([*lines, *symbols.facts])


def _numbers_text(value: torch.Tensor | None) -> str:
    if value is None or isinstance(value, FakeTensor) or value.dtype.is_floating_point:
        return ""
    if value.numel() > _LISTED:
        return f" {hashlib.sha256(value.contiguous().numpy().tobytes()).hexdigest()}"
    return f" {value.tolist()}"


def target_text(target: Any) -> str:  # noqa: ANN401
    """Return the full name of an operator or function."""
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
    """Return the text of an argument, a result or an option.

    Raises:
        NotSerializable: Its type is unknown.
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
