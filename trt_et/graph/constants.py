"""The constants of an exported program: their values, and new ones."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, InputSpec, TensorArgument
from torch.fx import Graph, Node

__all__ = ["add_constant", "constant_names", "constant_values", "input_names"]


def constant_names(program: ExportedProgram) -> frozenset[str]:
    """The names of the placeholders that are weights or constants and stay what they are."""
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
    """The names of the placeholders that the caller passes values for.

    ``ExportGraphSignature.user_inputs`` holds the value in place of the name for a Python number,
    which export has made a constant of.
    """
    specs = program.graph_signature.input_specs
    return frozenset(spec.arg.name for spec in specs if spec.kind is InputKind.USER_INPUT)


def constant_values(program: ExportedProgram) -> Mapping[str, torch.Tensor]:
    """The values of :func:`constant_names` that are tensors, by placeholder name."""
    names = constant_names(program)
    values = {**program.state_dict, **program.constants}
    found = {}
    for spec in program.graph_signature.input_specs:
        value = values.get(str(spec.target), values.get(spec.arg.name))
        if spec.arg.name in names and isinstance(value, torch.Tensor):
            found[spec.arg.name] = value
    return found


def add_constant(graph: Graph, specs: list[InputSpec], target: str, value: torch.Tensor) -> Node:
    """A constant behind all others, as exported programs have them.

    Args:
        graph: A program's own graph; changed in place.
        specs: The inputs of its signature; changed in place.
        target: The constant's name among the program's constants, where the caller puts it.
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
