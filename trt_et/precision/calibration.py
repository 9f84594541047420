"""Runs a program on example inputs, to see the largest value of each tensor."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.fx import Interpreter, Node
from torch.utils import _pytree as pytree

from trt_et.errors import OptionError, PartitionError
from trt_et.graph.marks import Mark
from trt_et.precision.rules import attention_masks, largest_value

_log = logging.getLogger(__name__)

_MOST_NAMES: Final = 5


class Calibration:
    """Marks the calls of a program whose values leave the range of a precision.

    Args:
        inputs: The option ``calibration``.
        precision: The dtype of the other calls; None: nothing is marked.

    Raises:
        OptionError: ``inputs`` is not a sequence of tuples.
    """

    def __init__(self, inputs: object, precision: torch.dtype | None) -> None:
        self._inputs = _checked_inputs(inputs)
        self._precision = precision
        self._beyond = Mark.own("beyond_range")
        self._done = Mark.own("calibrated")

    def mark(self, program: ExportedProgram, is_float32: Callable[[Node], bool]) -> None:
        """Mark the calls that take or make values beyond half of the precision's largest number.

        Warn of tensors whose values are all too small for the precision.

        Args:
            program: As ``torch.export`` returns it; its nodes are marked.
            is_float32: Whether the caller chose a call to keep float32.

        Raises:
            OptionError: The program does not take the inputs.
            PartitionError: A weight has no values.
        """
        if self._precision is None:
            return
        self._done.write(program.graph.output_node(), True)
        if self._inputs is not None:
            maxima = largest_values(program, self._inputs)
        elif self._precision == torch.float16:
            maxima = largest_example_values(program)
        else:
            return
        limit = float(torch.finfo(self._precision).max) / 2
        beyond = {name for name, value in maxima.items() if value > limit}
        for node in program.graph.nodes:
            if beyond and node.op == "call_function":
                taken = set(node.all_input_nodes).difference(attention_masks(node))
                if beyond & {node.name, *(source.name for source in taken)}:
                    self._beyond.write(node, f"values beyond {limit:.3g} in calibration")

        smallest = float(torch.finfo(self._precision).smallest_normal)
        calls = program.graph.nodes
        low = [n for n in calls if n.op == "call_function" and 0 < maxima.get(n.name, 0) < smallest]
        _warn_underflow([node for node in low if not is_float32(node)], maxima, smallest)

    def reason(self, node: Node) -> str | None:
        """Return why a call keeps float32; None if its values are in range."""
        reason: str | None = self._beyond.of(node)
        return reason

    def check_done(self, program: ExportedProgram) -> None:
        """Check that the exported form of an Edge program was calibrated.

        Raises:
            PartitionError: It was not, and the caller gave inputs.
        """
        if self._inputs and not self._done.of(program.graph.output_node()):
            raise PartitionError(
                "calibration needs the exported program: lower it by to_edge_transform_and_lower"
            )


def _warn_underflow(nodes: list[Node], maxima: Mapping[str, float], smallest: float) -> None:
    if not nodes:
        return
    named = ", ".join(f"{node.name} ({maxima[node.name]:.2g})" for node in nodes[:_MOST_NAMES])
    rest = f" and {len(nodes) - _MOST_NAMES} more" if len(nodes) > _MOST_NAMES else ""
    _log.warning(
        "the largest values of %d tensor(s) in calibration are below %.2g, where the reduced "
        "precision loses digits or gives 0: %s%s. Keep them, and what reads them, in float32: "
        "float32_ops=%r",
        *(len(nodes), smallest, named, rest, [node.name for node in nodes[:_MOST_NAMES]]),
    )


def _checked_inputs(inputs: object) -> tuple[tuple[Any, ...], ...] | None:
    if inputs is None:
        return None
    if isinstance(inputs, Sequence) and all(isinstance(each, tuple) for each in inputs):
        return tuple(inputs)
    raise OptionError(
        f"calibration is {type(inputs).__name__}; expected a list of tuples, each with the inputs "
        "of one call, as torch.export takes them"
    )


def largest_example_values(program: ExportedProgram) -> dict[str, float]:
    """Return what ``largest_values`` does, for the program's example inputs.

    Empty if it has none, or if it cannot run on them: on fake tensors, for example.
    """
    try:
        return largest_values(program, [(program.example_inputs,)])
    except (OptionError, PartitionError) as error:
        _log.info("the range of float16 is not checked with the example inputs: %s", error)
        return {}


def largest_values(
    program: ExportedProgram, calibration: Sequence[tuple[Any, ...]]
) -> dict[str, float]:
    """Return the largest finite magnitude of each floating-point tensor, by node name.

    Weights and state before the run do not count: they are there when a partition is converted.
    Values inside of branches and loops are not seen.

    Args:
        program: As ``torch.export`` returns it; not changed. State has its first values in each
            run.
        calibration: The inputs of each run, on the CPU.

    Raises:
        OptionError: The program does not take the inputs.
        PartitionError: A weight has no values.
    """
    maxima: dict[str, float] = {}
    specs = program.graph_signature.input_specs
    given = {spec.arg.name for spec in specs if spec.kind is InputKind.USER_INPUT}
    for index, inputs in enumerate(calibration):
        arguments = _arguments(program, pytree.tree_leaves(inputs), index)
        try:
            with torch.no_grad():
                _Recorder(program.graph_module, given, maxima).run(*arguments)
        except Exception as error:  # torch raises many types.
            first = (str(error).strip().splitlines() or [""])[0]
            raise OptionError(
                f"calibration[{index}] cannot be run: {type(error).__name__}: {first}"
            ) from error
    return maxima


def _arguments(program: ExportedProgram, inputs: list[Any], index: int) -> list[Any]:
    specs = program.graph_signature.input_specs
    expected = sum(spec.kind is InputKind.USER_INPUT for spec in specs)
    if len(inputs) != expected:
        raise OptionError(
            f"calibration[{index}] has {len(inputs)} inputs; the program takes {expected}"
        )
    given = iter(inputs)
    values = {**program.state_dict, **program.constants}
    nodes = {node.name: node for node in program.graph.find_nodes(op="placeholder")}
    arguments = []
    for spec in specs:
        if spec.kind is InputKind.USER_INPUT:
            argument = next(given)
            _check_input(argument, nodes[spec.arg.name].meta.get("val"), index, spec.arg.name)
            arguments.append(_copy(argument))
            continue
        value = values.get(str(spec.target))
        if isinstance(value, FakeTensor):
            raise PartitionError(
                f"calibration needs the values of weight {spec.target}: make the model outside of "
                "FakeTensorMode"
            )
        arguments.append(value if spec.kind is InputKind.PARAMETER else _copy(value))
    return arguments


def _copy(value: Any) -> Any:  # noqa: ANN401
    # The program may write to its inputs and its state.
    return value.clone() if isinstance(value, torch.Tensor) else value


def _check_input(given: object, expected: object, index: int, name: str) -> None:
    if not isinstance(expected, torch.Tensor):
        return
    if not isinstance(given, torch.Tensor):
        raise OptionError(
            f"calibration[{index}]: input {name} is {type(given).__name__}; expected a tensor"
        )
    if given.dtype != expected.dtype:
        raise OptionError(
            f"calibration[{index}]: input {name} is {given.dtype}; expected {expected.dtype}"
        )
    sizes = list(expected.shape)
    if len(given.shape) != len(sizes) or any(
        isinstance(size, int) and size != given_size
        for size, given_size in zip(sizes, given.shape, strict=True)
    ):
        raise OptionError(
            f"calibration[{index}]: input {name} is {list(given.shape)}; expected {sizes}"
        )


class _Recorder(Interpreter):
    def __init__(
        self, module: torch.fx.GraphModule, given: set[str], maxima: dict[str, float]
    ) -> None:
        super().__init__(module)
        self._given = given
        self._maxima = maxima

    def run_node(self, n: Node) -> Any:  # noqa: ANN401
        result = super().run_node(n)
        if n.op == "output" or (n.op == "placeholder" and n.name not in self._given):
            return result
        for value in pytree.tree_leaves(result):
            if isinstance(value, torch.Tensor) and value.is_floating_point():
                largest = largest_value(value)
                self._maxima[n.name] = max(self._maxima.get(n.name, 0.0), largest)
        return result
