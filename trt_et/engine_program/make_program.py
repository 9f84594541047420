"""Makes the plain ATen program of an engine from a partition of an Edge program.

All builders start here: Torch-TensorRT's converters take the ATen graph, and the reference
builder makes a nested ExecuTorch program of it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.export import ExportedProgram

from trt_et.engine_program.canonical_names import canonical
from trt_et.engine_program.contiguous_boundary import contiguous_boundary, contiguous_values
from trt_et.engine_program.edge_to_aten import to_aten
from trt_et.engine_program.editable_program import changed_program
from trt_et.engine_program.in_place_buffers import InPlaceBuffer, with_binding_names
from trt_et.engine_program.optimization_profiles import OptimizationProfile
from trt_et.engine_program.program import EngineProgram
from trt_et.engine_program.sizes_from_inputs import replace_sizes
from trt_et.graph.size_remainders import write_out_remainders
from trt_et.graph.subgraphs import input_names


def make_engine_program(
    edge_program: ExportedProgram,
    partition: str,
    profiles: Sequence[OptimizationProfile] = (),
    aliased_outputs: Sequence[InPlaceBuffer] = (),
) -> EngineProgram:
    """Turn a partition, as ``BackendDetails.preprocess`` gets it, into a plain ATen program.

    ``partition`` is its name, for messages. Without profiles, an engine is tuned for the exported
    ranges. The buffers that may be written in place have the Edge program's names.

    Raises:
        PartitionError: A boundary value is no tensor, or has a dtype that no engine takes.
    """
    graph, _ = to_aten(edge_program.graph)
    users = set(input_names(edge_program))
    users -= replace_sizes(graph, users)
    write_out_remainders(graph)
    writable = with_binding_names(aliased_outputs, graph, users)
    inputs, outputs, tuned = contiguous_boundary(graph, users, partition, profiles)
    graph, signature, names, targets = canonical(graph, edge_program.graph_signature, users)
    given = [
        {new: values[old] for new, old in targets.items() if old in values}
        for values in (edge_program.state_dict, edge_program.constants)
    ]
    tensors = {k: v for each in given for k, v in each.items() if isinstance(v, torch.Tensor)}
    program = changed_program(edge_program, graph, signature, *map(contiguous_values, given))
    return EngineProgram(program, inputs, outputs, names, tensors, tuned, writable)
