"""Makes the values inside an engine outputs of it (the option ``debug_outputs``).

The runtime logs them for ExecuTorch's ``Inspector.calculate_numeric_gap``. They are outputs of the
engine, not of the delegate: no tensor of the program belongs to them.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from trt_et.blob.model import Binding
from trt_et.engine_program.contiguous_boundary import make_binding
from trt_et.engine_program.editable_program import EditableProgram
from trt_et.engine_program.optimization_profiles import OptimizationProfile
from trt_et.engine_program.program import DTYPE_NAMES, EngineProgram
from trt_et.graph.insertion import insert_call
from trt_et.graph.operators import CONVOLUTION
from trt_et.graph.symbolic_shapes import UnboundedDimension

aten = torch.ops.aten

_BATCH_NORM: Final = aten._native_batch_norm_legit_no_training.default


def add_debug_outputs(
    edited: EditableProgram,
    program: EngineProgram,
    edge_program: ExportedProgram,
    profiles: Sequence[OptimizationProfile] = (),
) -> tuple[Binding, ...]:
    """Append the result of each operator of the model to the outputs of a partition.

    If an operator of the model became several calls, the last of them has its result. Left out are
    operators with several results, which ``Inspector`` cannot compare, and results that depend on
    weights alone.

    Args:
        edited: The program's copy; changed.
        program: The program of the engine as it was.
        edge_program: Its origin; its calls have ExecuTorch's debug handles.
        profiles: The requested optimization profiles.

    Returns:
        The bindings of all outputs.
    """
    output = edited.graph.output_node()
    results: list[Any] = list(output.args[0])  # type: ignore[arg-type]
    in_place = {update.value for update in program.aliased_outputs}
    written = {r for r, b in zip(results, program.outputs, strict=True) if b.name in in_place}
    bindings = list(program.outputs)
    for node in _results_of_operators(edited, program, edge_program):
        binding = _binding(node, f"output{len(bindings)}", profiles)
        if binding is not None and node not in written:
            bindings.append(binding)
            results.append(node)
    output.args = (tuple(results),)
    return tuple(bindings)


def copy_repeated_outputs(program: EditableProgram, outputs: Sequence[Binding]) -> None:
    """Give each debug output a separate contiguous tensor, once dtypes are final."""
    output = program.graph.output_node()
    results: list[Any] = list(output.args[0])  # type: ignore[arg-type]
    for index, (binding, node) in enumerate(zip(outputs, results, strict=True)):
        value = node.meta["val"]
        if binding.value_of and (node in results[:index] or not value.is_contiguous()):
            layout = torch.contiguous_format
            results[index] = insert_call(output, aten.clone.default, node, memory_format=layout)
    output.args = (tuple(results),)


def _results_of_operators(
    edited: EditableProgram, program: EngineProgram, edge_program: ExportedProgram
) -> list[Node]:
    """Return the call that has the result of each operator of the model."""
    known = {node.name: node.meta.get("debug_handle") for node in edge_program.graph.nodes}
    nodes: dict[object, Node] = {}
    for node in _computed(edited):
        handle, made_by = (known.get(program.names.get(n.name, "")) for n in (node, _maker(node)))
        if isinstance(node.meta.get("val"), torch.Tensor) and handle == made_by:
            nodes[node.name if handle is None else handle] = node
        else:
            nodes.pop(handle, None)
    return list(nodes.values())


def _maker(node: Node) -> Node:
    source = node.args[0] if node.target is operator.getitem else node
    assert isinstance(source, Node)
    return source


def _computed(program: EditableProgram) -> list[Node]:
    """Return the calls that depend on the program's inputs."""
    depends = set(program.graph.find_nodes(op="placeholder")) - set(program.values)
    nodes = []
    for node in program.graph.nodes:
        if node.op == "call_function" and depends.intersection(node.all_input_nodes):
            depends.add(node)
            nodes.append(node)
    return nodes


def _binding(node: Node, name: str, profiles: Sequence[OptimizationProfile]) -> Binding | None:
    value = node.meta["val"]
    # A convolution is one layer with its batch norm: the result is the latter's.
    is_folded = node.target is CONVOLUTION and any(u.target is _BATCH_NORM for u in node.users)
    if value.dtype not in DTYPE_NAMES or is_folded:
        return None
    maker = _maker(node).name
    try:
        return replace(make_binding(name, value, None, profiles, is_input=False), value_of=maker)
    except UnboundedDimension:
        return None
