"""Read and add constants of an exported program."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, InputSpec, TensorArgument
from torch.fx import Graph, Node

__all__ = ["add_constant", "constant_names", "constant_values", "input_names", "known_constants"]


def constant_names(program: ExportedProgram) -> frozenset[str]:
    """Return the names of the placeholders for weights and constants that are never mutated."""
    signature = program.graph_signature
    buffers = signature.inputs_to_buffers
    mutated = set(signature.buffers_to_mutate.values())
    inputs = input_names(program)
    return frozenset(
        node.name
        for node in program.graph.nodes
        if node.op == "placeholder"
        and node.name not in inputs
        and buffers.get(node.name) not in mutated
    )


def input_names(program: ExportedProgram) -> frozenset[str]:
    """Return the names of the placeholders for the caller's inputs.

    ``ExportGraphSignature.user_inputs`` has the value instead of the name for a Python number,
    because export turns numbers into constants.
    """
    specs = program.graph_signature.input_specs
    return frozenset(spec.arg.name for spec in specs if spec.kind is InputKind.USER_INPUT)


def constant_values(program: ExportedProgram) -> Mapping[str, torch.Tensor]:
    """Return the tensors among ``constant_names``, by placeholder name."""
    names = constant_names(program)
    values = {**program.state_dict, **program.constants}
    found = {}
    for spec in program.graph_signature.input_specs:
        value = values.get(str(spec.target), values.get(spec.arg.name))
        if spec.arg.name in names and isinstance(value, torch.Tensor):
            found[spec.arg.name] = value
    return found


def known_constants(
    program: ExportedProgram, weights: Mapping[str, torch.Tensor]
) -> dict[str, torch.Tensor | None]:
    """Return the values of ``constant_names``, by placeholder name; None if unknown.

    Args:
        program: Its ``state_dict`` may hold fake tensors.
        weights: The values that an earlier form of the program had, by name.
    """
    names = constant_names(program)
    values = {**program.constants, **weights}
    return {
        spec.arg.name: _value_like(spec.target, values, program)
        for spec in program.graph_signature.input_specs
        if spec.arg.name in names
    }


def _value_like(
    target: str | None, values: Mapping[str, object], program: ExportedProgram
) -> torch.Tensor | None:
    value, fake = values.get(str(target)), program.state_dict.get(str(target))
    if not isinstance(value, torch.Tensor) or isinstance(value, FakeTensor):
        return None
    if fake is not None and (value.dtype, value.shape) != (fake.dtype, fake.shape):
        return None  # A pass replaced the weight.
    return value


def add_constant(graph: Graph, specs: list[InputSpec], target: str, value: torch.Tensor) -> Node:
    """Add a constant after all others, and return its placeholder.

    Args:
        graph: A program's own graph; changed in place.
        specs: The inputs of the program's signature; changed in place.
        target: The constant's name; the caller adds it to the program's constants.
        value: The constant.
    """
    position = next(
        (i for i, spec in enumerate(specs) if spec.kind is InputKind.USER_INPUT), len(specs)
    )
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    before = placeholders[position] if position < len(placeholders) else None
    anchor = before or next(node for node in graph.nodes if node.op != "placeholder")
    with graph.inserting_before(anchor):
        node = graph.placeholder(f"c{target}")
    node.name = f"c{target}"
    modes = [getattr(n.meta.get("val"), "fake_mode", None) for n in graph.nodes]
    mode = next((mode for mode in modes if mode is not None), None)
    node.meta["val"] = value if mode is None else mode.from_tensor(value, static_shapes=True)
    spec = InputSpec(InputKind.CONSTANT_TENSOR, TensorArgument(name=node.name), target)
    specs.insert(position, spec)
    return node
