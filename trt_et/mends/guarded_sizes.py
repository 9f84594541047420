"""Narrows dynamic sizes to the values that the guards of ``torch.export`` accept.

``torch.export`` may assume more of a size than its range shows: ``int(h * 14)`` fixes ``h``.
``program.module()`` checks such assumptions at each call. A lowered program has no guards: at other
sizes it would run, and return a wrong result.
"""

from __future__ import annotations

import copy
import logging
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePath
from typing import Any, Final

import sympy
import torch
from torch.export import ExportedProgram
from torch.fx import Node
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils._sympy.value_ranges import ValueRanges, bound_sympy

from trt_et.graph.symbolic_shapes import dynamic_sizes, shape_env_of, shown_symbol

_log = logging.getLogger(__name__)

# All sizes of a range up to this length are tried, and samples of a longer one.
_MOST_SIZES: Final = 512

# Functions of torch that ask for the order of a tensor's elements in memory.
_OF_LAYOUTS: Final = (
    "check_contiguous_sizes_strides",
    "is_contiguous",
    "should_swap",
)

_Values = Mapping[sympy.Symbol, int]


def narrow_guarded_sizes(program: ExportedProgram) -> None:
    """Narrow a program's dynamic sizes to the ranges that its guards accept.

    A warning names each input, its sizes, and the line of the model. Sizes that no range can
    express, such as multiples of 8, are only warned of.

    Args:
        program: As ``torch.export`` returns it, with symbols of its own; its ranges are changed.
    """
    if not (program.range_constraints and program._guards_code):
        return
    # torch leaves the guards out if ExecuTorch is among the callers.
    with ThreadPoolExecutor(1) as elsewhere:
        module = elsewhere.submit(_without_guards_on_layouts(program).module).result()
    check: Any = getattr(module, "_guards_fn", None)
    if check is None:
        return
    sizes = _Sizes(program, check)
    narrowed = [found for symbol in sizes.ranges if (found := _accepted(sizes, symbol)) is not None]
    for guard in dict.fromkeys(found.guard for found in narrowed if found.is_together):
        _log.warning(
            "torch.export assumed that %s: inputs whose sizes do not fit so give a wrong result or "
            "an error. Dimensions that are always equal can share a Dim",
            guard,
        )
    for found in narrowed:
        if not found.is_together:
            found.warn(sizes)
    _set_ranges(program, {f.symbol: f.range for f in narrowed if f.range is not None})


def _without_guards_on_layouts(program: ExportedProgram) -> ExportedProgram:
    """Return a program without torch's questions whether a tensor is contiguous.

    Their answers choose strides, not values, and a delegate's tensors are contiguous. Nor does it
    matter that a size that is broadcast is not 1: the other one is 1, or another guard has both
    equal. A file has no guard's origin: a program that comes from one keeps all guards.
    """
    placeholders = program.graph.find_nodes(op="placeholder")
    sizes = [size for node in placeholders for _, size in dynamic_sizes(node)]
    guards = shape_env_of(sizes[0]).guards if sizes else []
    if len(guards) != len(program._guards_code):
        return program
    checked = copy.copy(program)
    checked._guards_code = [
        code
        for guard, code in zip(guards, program._guards_code, strict=True)
        if not _is_of_layout(guard)
    ]
    return checked


def _is_of_layout(guard: Any) -> bool:  # noqa: ANN401
    name = getattr(guard.sloc.framework_loc, "name", None)
    is_not_one = isinstance(guard.expr, sympy.Ne) and guard.expr.rhs == 1
    return name in _OF_LAYOUTS or (name == "infer_size" and is_not_one)


class _Sizes:
    """The symbols of a program's inputs, and the guards on their values."""

    def __init__(self, program: ExportedProgram, check: Callable[..., None]) -> None:
        self.program = program
        self._check = check
        names = set(program.graph_signature.user_inputs)
        placeholders = program.graph.find_nodes(op="placeholder")
        self.inputs: list[Node] = [node for node in placeholders if node.name in names]
        sizes = [size for node in self.inputs for _, size in dynamic_sizes(node)]
        self.ranges: dict[sympy.Symbol, tuple[int, int]] = {}
        self.exported: dict[sympy.Symbol, int] = {}
        for size in sizes:
            line = shown_symbol(size)
            bounds = line and program.range_constraints.get(line[0])
            if line is None or bounds is None or not size.node.has_hint():
                continue
            symbol, factor, number = line
            exported = (int(size.node.hint) - number) // factor  # type: ignore[arg-type]
            high = int(bounds.upper) if bounds.upper.is_Integer else max(exported * 64, 2**16)
            self.ranges[symbol] = int(bounds.lower), high
            self.exported[symbol] = exported

    @cached_property
    def environment(self) -> ShapeEnv:
        """The environment of the symbols."""
        return next(shape_env_of(s) for node in self.inputs for _, s in dynamic_sizes(node))

    def refusal(self, values: _Values) -> str | None:
        """Return the guard that refuses the inputs with these sizes; None if all accept them."""
        known = self.exported | dict(values)
        try:
            self._check(*(_input_of(node, known) for node in self.inputs))
        except AssertionError as error:
            return str(error).removeprefix("Guard failed: ")
        except ArithmeticError:
            pass  # A guard that divides by sizes of other ranges narrows nothing.
        return None

    def refusal_anywhere(self, symbol: sympy.Symbol, value: int) -> bool:
        """Return whether a value is refused, however large the other sizes are."""
        others = [(s, ends) for s, ends in self.ranges.items() if s != symbol]
        return all(
            self.refusal({symbol: value, **{s: ends[end] for s, ends in others}}) is not None
            for end in (0, 1)
        )

    def places(self, symbol: sympy.Symbol) -> list[tuple[Node, int, sympy.Expr]]:
        """Return the dimensions that have a size, and their expressions."""
        return [
            (node, dim, size.node.expr)
            for node in self.inputs
            for dim, size in dynamic_sizes(node)
            if symbol in size.node.expr.free_symbols
        ]

    def line(self, symbol: sympy.Symbol, value: int) -> str:
        """Return the line of the model whose guard refuses a size; empty if not known."""
        for guard in self.environment.guards:
            condition = self.environment.replace(guard.expr)
            if condition.free_symbols == {symbol} and condition.subs(symbol, value) is sympy.false:
                place = str(guard.sloc).strip("()")
                return f" at {PurePath(place).name}" if ":" in place else ""
        return ""


@dataclass(frozen=True)
class _Accepted:
    """What guards accept of one size.

    Attributes:
        symbol: The size.
        refused: A value that they refuse.
        guard: The guard.
        range: The accepted range; None if the accepted values are no range.
        is_together: Whether they accept all values if the sizes that are equal in the example are.
    """

    symbol: sympy.Symbol
    refused: int
    guard: str
    range: tuple[int, int] | None
    is_together: bool

    def warn(self, sizes: _Sizes) -> None:
        """Warn that the lowered program cannot check the guard."""
        node, dim, expression = sizes.places(self.symbol)[0]

        def size(value: int) -> int:
            known = {s: sizes.exported[s] for s in expression.free_symbols if s in sizes.exported}
            return int(expression.subs({**known, self.symbol: value}))

        low, high = sizes.ranges[self.symbol]
        if self.range is None:
            effect = f"size {size(self.refused)}, for example, gives a wrong result or an error"
        elif self.range[0] == self.range[1]:
            effect = f"the lowered program takes {size(self.range[0])} only"
        else:
            effect = f"the lowered program takes {size(self.range[0])} to {size(self.range[1])}"
        _log.warning(
            "dimension %d of input %s was exported for %d to %d, but torch.export assumed%s that "
            "%s: %s. Make the model compute with the size itself, without int(), round() or "
            "comparisons, or export with another range",
            *(dim, node.name, size(low), size(high)),
            *(sizes.line(self.symbol, self.refused), self.guard, effect),
        )


def _input_of(node: Node, values: _Values) -> Any:  # noqa: ANN401
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor):
        return value
    shape = [
        int(size.node.expr.subs(values)) if isinstance(size, torch.SymInt) else size
        for size in value.shape
    ]
    return torch.empty(shape, dtype=value.dtype, device="meta")


def _accepted(sizes: _Sizes, symbol: sympy.Symbol) -> _Accepted | None:
    """Return which values of a size the guards accept; None if they accept its range."""
    exported = sizes.exported[symbol]
    tried = _values(*sizes.ranges[symbol], exported)
    refusals = {value: sizes.refusal({symbol: value}) for value in tried}
    refused = [value for value in tried if refusals[value] is not None]
    if not refused or refusals[exported] is not None:
        return None
    first = min(refused, key=lambda value: abs(value - exported))
    accepted = [value for value in tried if refusals[value] is None]
    below = [value for value in refused if value < accepted[0]]
    above = [value for value in refused if value > accepted[-1]]
    has_gaps = len(below) + len(above) < len(refused)
    equal = [each for each, value in sizes.exported.items() if value == exported]
    is_together = len(equal) > 1 and all(
        sizes.refusal(dict.fromkeys(equal, value)) is None for value in refused
    )
    range_ = None
    is_range = not (has_gaps or is_together)
    if is_range and all(sizes.refusal_anywhere(symbol, value) for value in refused):

        def is_refused(value: int) -> bool:
            return sizes.refusal({symbol: value}) is not None

        low, high = accepted[0], accepted[-1]
        if below:
            between = range(below[-1] + 1, low)
            low = below[-1] + 1 + bisect_left(between, True, key=lambda v: not is_refused(v))
        if above:
            between = range(high + 1, above[0])
            high = high + bisect_left(between, True, key=is_refused)
        range_ = (low, high)
    return _Accepted(symbol, first, str(refusals[first]), range_, is_together)


def _values(low: int, high: int, exported: int) -> list[int]:
    """Return the values to try."""
    if high - low < _MOST_SIZES:
        return list(range(low, high + 1))
    near = [exported + sign * 2**power for power in range(high.bit_length()) for sign in (1, -1)]
    multiples = [exported * times for times in range(2, 5)] + [exported // 2]
    spread = range(low, high + 1, (high - low) // _MOST_SIZES + 1)
    chosen = {low, exported, high, *near, *multiples, *spread}
    return sorted(value for value in chosen if low <= value <= high)


def _set_ranges(program: ExportedProgram, ranges: Mapping[sympy.Symbol, tuple[int, int]]) -> None:
    fixed = {symbol: low for symbol, (low, high) in ranges.items() if low == high}
    for node in program.graph.find_nodes(op="placeholder"):
        for _, size in dynamic_sizes(node):
            _narrow(shape_env_of(size).var_to_range, ranges)
        if any(_is_fixed(size, fixed) for _, size in dynamic_sizes(node)):
            node.meta["val"] = _with_numbers(node.meta["val"], fixed)
    _narrow(program._range_constraints, ranges)
    for expression in list(program.range_constraints):
        if expression.free_symbols & fixed.keys():
            del program._range_constraints[expression]


def _narrow(known: dict[Any, Any], ranges: Mapping[sympy.Symbol, tuple[int, int]]) -> None:
    """Change the bounds of symbols, and of the sizes that are computed from them."""
    symbols = {symbol: ValueRanges(*bounds) for symbol, bounds in ranges.items()}
    bounds = {s: known[s] for s in known if s.is_Symbol} | symbols
    for expression in list(known):
        if expression.free_symbols & ranges.keys():
            known[expression] = bound_sympy(expression, bounds)


def _is_fixed(size: torch.SymInt, fixed: Iterable[sympy.Symbol]) -> bool:
    return bool(size.node.expr.free_symbols) and size.node.expr.free_symbols <= set(fixed)


def _with_numbers(tensor: Any, fixed: _Values) -> torch.Tensor:  # noqa: ANN401
    """Return a fake tensor with the numbers of fixed sizes."""

    def number(size: int | torch.SymInt) -> int | torch.SymInt:
        if isinstance(size, torch.SymInt) and _is_fixed(size, fixed):
            return int(size.node.expr.subs(fixed))
        return size

    with tensor.fake_mode:
        return torch.empty_strided(
            [number(size) for size in tensor.shape],
            [number(stride) for stride in tensor.stride()],
            dtype=tensor.dtype,
            device=tensor.device,
        )
