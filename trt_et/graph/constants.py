"""Read and add constants of an exported program."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from operator import attrgetter
from typing import Any, Final
from weakref import WeakValueDictionary

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, InputSpec, TensorArgument
from torch.fx import Graph, Node

from trt_et.graph.insertion import fake_mode_of
from trt_et.graph.marks import Mark
from trt_et.graph.symbolic_shapes import is_static

# The values of weights that exist, by the number that their placeholders are marked with.
_VALUES: Final[WeakValueDictionary[int, torch.Tensor]] = WeakValueDictionary()
_NUMBERS: Final = count()  # Not id(): a new tensor may have the id() of a dead one.
_VALUE: Final = Mark.own("value")


def constant_names(program: ExportedProgram) -> frozenset[str]:
    """Return the names of the placeholders for weights and constants that are never mutated."""
    mutated = set(program.graph_signature.buffers_to_mutate.values())
    return frozenset(
        spec.arg.name
        for spec in program.graph_signature.input_specs
        if spec.kind is not InputKind.USER_INPUT and spec.target not in mutated
    )


def constant_values(program: ExportedProgram) -> Mapping[str, torch.Tensor]:
    """Return the tensors among ``constant_names``, by placeholder name."""
    names = constant_names(program)
    values = {**program.state_dict, **program.constants}
    constants = {}
    for spec in program.graph_signature.input_specs:
        value = values.get(str(spec.target), values.get(spec.arg.name))
        if spec.arg.name in names and isinstance(value, torch.Tensor):
            constants[spec.arg.name] = value
    return constants


def mark_constants(program: ExportedProgram) -> None:
    """Mark the placeholders of constants with their values, so that ``known_constants`` finds them.

    The values are not kept alive.
    """
    values = constant_values(program)
    for node in program.graph.find_nodes(op="placeholder"):
        if node.name in values:
            number = next(_NUMBERS)
            _VALUES[number] = values[node.name]
            _VALUE.write(node, number)


def known_constants(program: ExportedProgram) -> dict[str, torch.Tensor | None]:
    """Return the values of ``constant_names``, by placeholder name; None if unknown.

    ExecuTorch hands a partitioner a program with fake values; its exported form was marked.
    """
    names, values = constant_names(program), constant_values(program)
    placeholders = program.graph.find_nodes(op="placeholder")
    return {n.name: _real(n, values.get(n.name)) for n in placeholders if n.name in names}


def _real(node: Node, value: torch.Tensor | None) -> torch.Tensor | None:
    if not isinstance(value, FakeTensor):
        return value
    real = _VALUES.get(_VALUE.of(node))
    if real is None or (real.dtype, real.shape) != (value.dtype, value.shape):
        return None  # A pass replaced the weight.
    return None if isinstance(real, FakeTensor) else real


def add_constant(graph: Graph, specs: list[InputSpec], target: str, value: torch.Tensor) -> Node:
    """Add a constant to a program's graph and inputs, after the others; return its placeholder.

    The caller adds it to the program's constants, by its name ``target``.
    """
    position = next(
        (i for i, spec in enumerate(specs) if spec.kind is InputKind.USER_INPUT), len(specs)
    )
    with graph.inserting_before(list(graph.nodes)[position]):  # Placeholders come first.
        node = graph.placeholder(f"c{target}")
    node.name = f"c{target}"
    mode = fake_mode_of(graph.nodes)
    node.meta["val"] = value if mode is None else mode.from_tensor(value, static_shapes=True)
    spec = InputSpec(InputKind.CONSTANT_TENSOR, TensorArgument(name=node.name), target)
    specs.insert(position, spec)
    return node


def constant_value(node: Node) -> torch.Tensor | None:
    """Compute the value of a node that depends on attributes of its module alone, else None."""
    owner: Any = node.graph.owning_module
    values: dict[Node, Any] = {}
    pending = [node]
    while pending:
        each = pending[-1]
        missing = [source for source in each.all_input_nodes if source not in values]
        if each.op not in ("get_attr", "call_function") or not is_static(each):
            return None
        pending.extend(missing)
        if not missing:
            pending.pop()
            if each.op == "get_attr":
                values[each] = attrgetter(str(each.target))(owner)
            else:
                args, kwargs = torch.fx.map_arg((each.args, each.kwargs), values.__getitem__)
                with torch.no_grad():
                    values[each] = each.target(*args, **kwargs)  # type: ignore[operator]
    result = values[node]
    return result if isinstance(result, torch.Tensor) else None
