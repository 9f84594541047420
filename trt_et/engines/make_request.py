"""Makes the request of a job: the partition as its builder gets it."""

from __future__ import annotations

from dataclasses import replace

from trt_et.engine_program.debug_outputs import add_debug_outputs, copy_repeated_outputs
from trt_et.engine_program.editable_program import EditableProgram
from trt_et.engine_program.make_program import make_engine_program
from trt_et.engines.base import BuildRequest
from trt_et.engines.job import Job
from trt_et.ops.prebuilt_engine import is_prebuilt
from trt_et.precision.program import FLOAT32, compute_in


def make_request(job: Job) -> BuildRequest:
    """Make the program of a job's engine, and edit it as the options of its engine ask.

    It computes in its precision, or returns its debug outputs.
    """
    options = job.options
    program = make_engine_program(job.program, job.name, job.profiles, job.aliased_outputs)
    calls = {node.target for node in program.exported.graph.nodes if node.op == "call_function"}
    is_changed = options.debug_outputs or options.precision is not None
    if is_changed and not any(map(is_prebuilt, calls)):
        edited, outputs = EditableProgram(program.exported, program.constants), program.outputs
        if options.debug_outputs:
            outputs = add_debug_outputs(edited, program, job.program, job.profiles)
        if options.precision is not None:
            decided = {
                node.name: FLOAT32.of(node) is not None
                for node in job.program.graph.nodes
                if node.op == "call_function"
            }
            compute_in(edited, options.precision, decided, program.names)
        if options.debug_outputs:
            copy_repeated_outputs(edited, outputs)
        program = replace(program, exported=edited.program(), outputs=outputs)
    timings = job.cache.timings_folder if job.cache is not None else None
    monitor = job.listener.monitor(job.name)
    return BuildRequest(job.name, program, job.device_id, options, timings, monitor)
