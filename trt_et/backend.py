"""The ahead-of-time half of the delegate: a partition becomes an engine blob."""

from __future__ import annotations

from typing import final

from executorch.exir.backend.backend_details import BackendDetails, PreprocessResult
from executorch.exir.backend.compile_spec_schema import CompileSpec
from torch.export import ExportedProgram

from trt_et.builders import BuildOptions, make_builder
from trt_et.errors import BackendConflictError
from trt_et.graph.tracing import unchanged_fake_modes
from trt_et.scheduler.build_plan import PartitionPlan, plan_of
from trt_et.scheduler.build_session import build_engines
from trt_et.target_device import explicit_device, parse_device, resolve_target_device

__all__ = ["TensorRTBackend", "check_no_conflict"]


@final
class TensorRTBackend(BackendDetails):
    """Turns each partition into an engine blob and says on which GPU its tensors live.

    Partitions made by :class:`trt_et.TensorRTPartitioner` carry their builder and options. What is
    lowered by name (``to_backend("TensorRTBackend", program, specs)``) is built with the ``auto``
    builder for the GPU that its ``target_device`` spec names.
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
            edge_program: The partition, in the Edge dialect, with real weights; not changed.
            compile_specs: The partition's own list. A ``target_device`` spec is appended to it
                where the caller gave none: ExecuTorch reads it from this very list afterwards.

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
            edge_programs: The partitions of each method, as for :meth:`preprocess`.
            compile_specs: Their lists of compile specs.

        Raises:
            PartitionError: As for :meth:`preprocess`.
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
    plans = [plan_of(*pair) or _plan_by_name(pair[1]) for pair in partitions]
    for check in dict.fromkeys(plan.check for plan in plans if plan.check is not None):
        check()
    programs = [program for program, _ in partitions]
    with unchanged_fake_modes(programs):
        engines = build_engines(list(zip(programs, plans, strict=True)))
    for plan, engine, (_, specs) in zip(plans, engines, partitions, strict=True):
        resolve_target_device(plan.name, engine.info, engine.blob, specs)
    return [PreprocessResult(processed_bytes=engine.blob) for engine in engines]


def check_no_conflict() -> None:
    """Refuse to go on where ExecuTorch could pick another class for our backend id.

    ExecuTorch finds a backend by its class's ``__name__`` and takes whichever it meets last.

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


def _plan_by_name(compile_specs: list[CompileSpec]) -> PartitionPlan:
    """The plan of a program that is lowered by the backend's name, without a partitioner."""
    pinned = explicit_device(compile_specs)
    device_id = 0 if pinned is None else parse_device(pinned.decode(errors="replace"))
    return PartitionPlan("program", make_builder("auto"), device_id, BuildOptions())
