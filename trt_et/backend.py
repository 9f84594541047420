"""The ahead-of-time half of the delegate: turns a partition into an engine blob."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final, final

from executorch.exir._serialize._named_data_store import NamedDataStore, NamedDataStoreOutput
from executorch.exir.backend.backend_details import BackendDetails, PreprocessResult
from executorch.exir.backend.compile_spec_schema import CompileSpec
from torch._subclasses.fake_tensor import FakeTensor
from torch.export import ExportedProgram

from trt_et.blob.external import FILE_KEY, check_file_name, take_out
from trt_et.engine_program.debug_handles import debug_handles
from trt_et.engine_program.partition_names import add_names
from trt_et.engines import BuildOptions, make_builder
from trt_et.engines.build import build_engines
from trt_et.engines.job import Engine, Job, JobSpecs, check_names, job_of
from trt_et.errors import BackendConflictError, OptionError, PartitionError
from trt_et.graph.tensor_bytes import bytes_of
from trt_et.mends.convolution import keep_ranges
from trt_et.target_device import explicit_device, parse_device, resolve_target_device

_ALIGNMENT: Final = 16  # Of named data, in bytes.


@final
class TensorRTBackend(BackendDetails):
    """Turns each partition into an engine blob, and names the GPU of its tensors.

    Partitions made by ``trt_et.TensorRTPartitioner`` carry their builder and options. A
    program lowered by name (``to_backend("TensorRTBackend", program, specs)``) is built with the
    ``auto`` builder for the GPU that its ``target_device`` spec names.
    """

    @classmethod
    def copy_exported_program_for_preprocess(
        cls, edge_program: ExportedProgram, compile_specs: list[CompileSpec]
    ) -> ExportedProgram:
        """Return the program itself: lowering copies its graph, and nothing copies its weights."""
        return edge_program

    @staticmethod
    def preprocess(
        edge_program: ExportedProgram, compile_specs: list[CompileSpec]
    ) -> PreprocessResult:
        """Build the engine of one partition.

        Args:
            edge_program: The partition, in the Edge dialect, with real weights. Of a partition
                that ``TensorRTPartitioner`` made, convolutions of dynamic sizes are replaced
                (``trt_et.mends.convolution``); nothing else is changed.
            compile_specs: The partition's own list. If it has no ``target_device`` spec, one is
                appended: ExecuTorch reads the spec from this very list afterwards.

        Raises:
            PartitionError: The engine could not be built, or is not one for this partition.
        """
        (result,) = _preprocess([(edge_program, compile_specs)])
        return result

    @classmethod
    def preprocess_multimethod(
        cls,
        edge_programs: dict[str, list[ExportedProgram]],
        compile_specs: dict[str, list[list[CompileSpec]]],
    ) -> dict[str, list[PreprocessResult]]:
        """Build the engines of all partitions of all methods, each distinct one once.

        Args:
            edge_programs: The partitions of each method, as for ``preprocess``.
            compile_specs: Their lists of compile specs.

        Raises:
            PartitionError: As for ``preprocess``.
        """
        partitions = [
            pair
            for method, programs in edge_programs.items()
            for pair in zip(programs, compile_specs[method], strict=True)
        ]
        results = iter(_preprocess(partitions))
        return {method: [next(results) for _ in edge_programs[method]] for method in edge_programs}


def _preprocess(
    partitions: list[tuple[ExportedProgram, list[CompileSpec]]],
) -> list[PreprocessResult]:
    jobs = [job_of(*pair) or _job_by_name(pair[1]) for pair in partitions]
    check_names(jobs)
    files = [_engine_file(specs) for _, specs in partitions]
    programs = [program for program, _ in partitions]
    for program in programs:
        _check_weights(program)
    engines = build_engines(list(zip(programs, jobs, strict=True)))
    for job, engine, (program, specs) in zip(jobs, engines, partitions, strict=True):
        resolve_target_device(job.name, engine.info, engine.blob, specs)
        add_names(job.name, program, specs)
        if engine.kernels is not None:
            job.kernels[job.name] = engine.kernels
        if isinstance(specs, JobSpecs):  # Else the graph is the caller's.
            keep_ranges(program.graph)
    shared: dict[str, bytes] = {}
    places: Counter[str] = Counter()
    return [
        _result(program, engine, file, shared, places)
        for (program, _), engine, file in zip(partitions, engines, files, strict=True)
    ]


def _result(
    program: ExportedProgram,
    engine: Engine,
    file: str | None,
    shared: dict[str, bytes],
    places: Counter[str],
) -> PreprocessResult:
    blob = engine.blob
    # Engines that refer to equal bytes share one copy.
    data: dict[str, bytes] = {}
    for key, tensor in engine.named_data.items():
        if key not in shared:
            shared[key] = bytes(bytes_of(tensor))
        data[key] = shared[key]
    if file is not None:
        blob, taken_out = take_out(blob, file, places)
        data |= taken_out
    logged = {binding.value_of for binding in engine.info.outputs}
    return PreprocessResult(
        blob,
        debug_handle_map=debug_handles(program, engine.names, logged),
        data_store_output=_named_data(data, file),
    )


def _named_data(data: Mapping[str, bytes], file: str | None) -> NamedDataStoreOutput | None:
    if not data:
        return None
    store = NamedDataStore()
    for key, value in data.items():
        store.add_named_data(key, value, alignment=_ALIGNMENT, external_tag=file)
    return store.get_named_data_store_output()


def _engine_file(specs: list[CompileSpec]) -> str | None:
    """Return the name of the file that a partition's engine goes to; None: into the program."""
    names = {bytes(spec.value).decode(errors="replace") for spec in specs if spec.key == FILE_KEY}
    if len(names) > 1:
        raise OptionError(f"compile_specs has several {FILE_KEY} specs: {sorted(names)}")
    return check_file_name(names.pop()) if names else None


def _check_weights(program: ExportedProgram) -> None:
    for name, tensor in {**program.state_dict, **program.constants}.items():
        if isinstance(tensor, FakeTensor):
            raise PartitionError(
                f"weight {name} has no values: the model was made under FakeTensorMode, and an "
                "engine needs them. Make the model outside of it; TensorRTPartitioner.explain() "
                "needs no values"
            )


def check_no_conflict() -> None:
    """Check that ExecuTorch cannot pick another class for our backend id.

    ExecuTorch finds a backend by its class's ``__name__``, and takes the last of several.

    Raises:
        BackendConflictError: Another ``TensorRTBackend`` is loaded.
    """
    others = [
        cls
        for cls in BackendDetails.__subclasses__()
        if cls.__name__ == TensorRTBackend.__name__ and cls is not TensorRTBackend
    ]
    if others:
        names = ", ".join(f"{cls.__module__}.{cls.__qualname__}" for cls in others)
        raise BackendConflictError(
            f"another backend named {TensorRTBackend.__name__!r} is loaded: {names}. ExecuTorch "
            "finds backends by that name and would use either one. Lower with trt-et in a process "
            "that does not import it (torch_tensorrt.executorch is not imported by torch_tensorrt "
            "itself)"
        )


def _job_by_name(compile_specs: list[CompileSpec]) -> Job:
    """Return the job of a program that is lowered by name, without a partitioner."""
    pinned = explicit_device(compile_specs)
    device_id = 0 if pinned is None else parse_device(pinned.decode())
    return Job("program", make_builder("auto"), device_id, BuildOptions())
