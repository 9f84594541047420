"""Makes the request of a job: the partition as its builder gets it."""

from __future__ import annotations

from dataclasses import replace

from trt_et.engine_program.batch_norms import BATCH_NORM, fold_batch_norms
from trt_et.engine_program.debug_outputs import add_debug_outputs, copy_repeated_outputs
from trt_et.engine_program.editable_program import EditableProgram
from trt_et.engine_program.lower import lower_partition
from trt_et.engine_program.lowered_partition import LoweredPartition
from trt_et.engines.base import BuildRequest
from trt_et.engines.job import Job
from trt_et.ops.prebuilt_engine import is_prebuilt
from trt_et.precision.program import FLOAT32, compute_in


def make_request(job: Job) -> BuildRequest:
    """Lower a job's partition, and edit it as the options of its engine ask."""
    lowered = lower_partition(job.program, job.name, job.profiles, job.aliased_outputs)
    timings = job.cache.timings_folder if job.cache is not None else None
    monitor = job.listener.monitor(job.name)
    return BuildRequest(
        job.name, _edited(lowered, job), job.device_id, job.options, timings, monitor
    )


def _edited(lowered: LoweredPartition, job: Job) -> LoweredPartition:
    """Return the partition in its precision, with its debug outputs, or with batch norms folded."""
    graph, options = lowered.program.graph, job.options
    has_norms = bool(graph.find_nodes(op="call_function", target=BATCH_NORM))
    is_changed = options.debug_outputs or options.precision is not None or has_norms
    if not is_changed or any(is_prebuilt(node.target) for node in graph.nodes):
        return lowered
    program, outputs = EditableProgram(lowered.program, lowered.constants), lowered.outputs
    if options.debug_outputs:
        outputs = add_debug_outputs(program, lowered, job.program, job.profiles)
    if options.precision is not None:
        marked = {node.name: FLOAT32.of(node) for node in job.program.graph.nodes}
        given = {name: why for name, old in lowered.names.items() if (why := marked.get(old))}
        compute_in(program, options.precision, given, outputs)
    elif not options.debug_outputs:
        fold_batch_norms(program)
    if options.debug_outputs:
        copy_repeated_outputs(program, outputs)
    return replace(lowered, program=program.program(), outputs=outputs)
