"""Read and add constants of an exported program."""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, InputSpec, TensorArgument
from torch.fx import Graph, Node

from trt_et.graph.insertion import fake_mode_of
from trt_et.graph.symbolic_shapes import is_static


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


def known_constants(program: ExportedProgram) -> dict[str, torch.Tensor | None]:
    """Return the values of ``constant_names``, by placeholder name; None if unknown.

    ExecuTorch hands a partitioner a program with fake values; the fake mode knows what they are of.
    """
    names, values = constant_names(program), constant_values(program)
    made = _real_tensors(fake_mode_of(program.graph.nodes))
    return {name: _real(values.get(name), made) for name in names}


def _real_tensors(mode: FakeTensorMode | None) -> dict[int, torch.Tensor]:
    """Return the tensors that a mode has made fake ones of, by the ``id`` of the fake one."""
    if mode is None:
        return {}
    converter: Any = mode.fake_tensor_converter.meta_converter
    fakes = converter.tensor_memo
    numbers = converter.describer.lookup_tensor.items()
    return {id(fakes[number]): tensor for tensor, number in numbers if number in fakes}


def _real(value: torch.Tensor | None, made: Mapping[int, torch.Tensor]) -> torch.Tensor | None:
    if not isinstance(value, FakeTensor):
        return value
    real = made.get(id(value))
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
    # ExecuTorch copies a constant for several partitions; torch unlifts a copied buffer only.
    spec = InputSpec(InputKind.BUFFER, TensorArgument(name=node.name), target, persistent=False)
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
