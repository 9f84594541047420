"""Edits a lowered partition as the options of its engine ask."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from torch.export import ExportedProgram

from trt_et.engine_program.batch_norms import BATCH_NORM, fold_batch_norms
from trt_et.engine_program.debug_outputs import add_debug_outputs, copy_repeated_outputs
from trt_et.engine_program.editable_program import EditableProgram
from trt_et.engine_program.lowered_partition import LoweredPartition
from trt_et.engine_program.optimization_profiles import OptimizationProfile
from trt_et.ops.prebuilt_engine import is_prebuilt
from trt_et.options import BuildOptions
from trt_et.precision.program import FLOAT32, compute_in


def edit_partition(
    lowered: LoweredPartition,
    edge_program: ExportedProgram,
    options: BuildOptions,
    profiles: Sequence[OptimizationProfile] = (),
) -> LoweredPartition:
    """Return a partition in its precision, with its debug outputs, or with batch norms folded.

    Args:
        lowered: Not changed; an engine that is there already is returned as it is.
        edge_program: What it was made of; marks and debug handles are on its calls.
        options: The options of its engine.
        profiles: The requested optimization profiles.
    """
    graph = lowered.program.graph
    has_norms = bool(graph.find_nodes(op="call_function", target=BATCH_NORM))
    is_changed = options.debug_outputs or options.precision is not None or has_norms
    if not is_changed or any(is_prebuilt(node.target) for node in graph.nodes):
        return lowered
    program, outputs = EditableProgram(lowered.program, lowered.constants), lowered.outputs
    if options.debug_outputs:
        outputs = add_debug_outputs(program, lowered, edge_program, profiles)
    if options.precision is not None:
        marked = {node.name: FLOAT32.of(node) for node in edge_program.graph.nodes}
        given = {name: why for name, old in lowered.names.items() if (why := marked.get(old))}
        compute_in(program, options.precision, given, outputs)
    elif not options.debug_outputs:
        fold_batch_norms(program)
    if options.debug_outputs:
        copy_repeated_outputs(program, outputs)
    return replace(lowered, program=program.program(), outputs=outputs)
