"""Turns a partition of an Edge program into a plain ATen program with contiguous boundaries.

All builders start here: Torch-TensorRT's converters take the ATen graph, and the reference
builder makes a nested ExecuTorch program of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import ExportGraphSignature, TensorArgument
from torch.fx import Graph, Node

from trt_et.engine_program.canonical_names import canonical
from trt_et.engine_program.contiguous_boundary import (
    contiguous_constants,
    contiguous_input,
    contiguous_outputs,
    contiguous_values,
    profile_shapes,
)
from trt_et.engine_program.edge_to_aten import to_aten
from trt_et.engine_program.editable_program import changed_program
from trt_et.engine_program.in_place_buffers import InPlaceBuffer
from trt_et.engine_program.lowered_partition import LoweredPartition
from trt_et.engine_program.optimization_profiles import OptimizationProfile
from trt_et.engine_program.sizes_from_inputs import replace_sizes
from trt_et.graph.constants import input_names
from trt_et.graph.size_remainders import write_out_remainders


def lower_partition(
    edge_program: ExportedProgram,
    partition: str,
    profiles: Sequence[OptimizationProfile] = (),
    aliased_outputs: Sequence[InPlaceBuffer] = (),
) -> LoweredPartition:
    """Turn a partition, as ``BackendDetails.preprocess`` gets it, into a plain ATen program.

    ``partition`` is its name, for messages. Without profiles, an engine is tuned for the exported
    ranges. The buffers that may be written in place have the Edge program's names.

    Raises:
        PartitionError: A boundary value is no tensor, or has a dtype that no engine takes.
    """
    graph, _ = to_aten(edge_program.graph)
    users = set(input_names(edge_program))
    sizes = replace_sizes(graph, users)
    write_out_remainders(graph)
    users -= sizes
    dropped = sizes | _drop_unused_constants(graph, users)
    placeholders = [n for n in graph.nodes if n.op == "placeholder" and n.name in users]
    inputs = tuple(
        contiguous_input(node, f"input{index}", partition, profiles)
        for index, node in enumerate(placeholders)
    )
    writable = _bindings_of(aliased_outputs, placeholders, graph.output_node())
    outputs = contiguous_outputs(graph, partition, profiles)
    contiguous_constants(graph, users)
    graph.lint()
    graph, signature, names, targets = canonical(
        graph, _signature(edge_program, graph, dropped), users
    )
    state, constants = (
        {new: values[old] for new, old in targets.items() if old in values}
        for values in (edge_program.state_dict, edge_program.constants)
    )
    tensors = {k: v for k, v in (state | constants).items() if isinstance(v, torch.Tensor)}
    program = changed_program(
        edge_program,
        graph,
        signature,
        contiguous_values(state),
        contiguous_values(constants),
    )
    shapes = {
        binding.name: node.meta["val"].shape
        for binding, node in zip(inputs, placeholders, strict=True)
        if binding.is_dynamic
    }
    tuned = tuple(
        {name: profile_shapes(sizes, profile) for name, sizes in shapes.items()}
        for profile in profiles
    )
    return LoweredPartition(program, inputs, outputs, names, tensors, tuned, writable)


def _bindings_of(
    aliased_outputs: Sequence[InPlaceBuffer], placeholders: Sequence[Node], output: Node
) -> tuple[InPlaceBuffer, ...]:
    """Return the updates whose input and output are in the partition, by binding name."""
    inputs = {node.name: f"input{index}" for index, node in enumerate(placeholders)}
    results: Sequence[Any] = output.args[0]  # type: ignore[assignment]
    outputs = {
        result.name: f"output{index}"
        for index, result in enumerate(results)
        if isinstance(result, Node)
    }
    return tuple(
        replace(update, buffer=inputs[update.buffer], value=outputs[update.value])
        for update in aliased_outputs
        if update.buffer in inputs and update.value in outputs
    )


def _drop_unused_constants(graph: Graph, users: set[str]) -> set[str]:
    """Drop unused weights, which ExecuTorch adds to the first partition."""
    placeholders = graph.find_nodes(op="placeholder")
    unused = [node for node in placeholders if node.name not in users and not node.users]
    for node in unused:
        graph.erase_node(node)
    return {node.name for node in unused}


def _signature(
    edge_program: ExportedProgram, graph: Graph, dropped: set[str]
) -> ExportGraphSignature:
    """Return the signature without dropped inputs, with the new names of its outputs."""
    signature = edge_program.graph_signature
    results: Any = graph.output_node().args[0]
    changed: ExportGraphSignature = replace(
        signature,
        input_specs=[spec for spec in signature.input_specs if spec.arg.name not in dropped],
        output_specs=[
            replace(spec, arg=TensorArgument(name=node.name))
            for spec, node in zip(signature.output_specs, results, strict=True)
        ],
    )
    return changed
