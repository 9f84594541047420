"""The ahead-of-time half of the delegate: a partition becomes an engine blob."""

from __future__ import annotations

import logging
from typing import final

from executorch.exir.backend.backend_details import BackendDetails, PreprocessResult
from executorch.exir.backend.compile_spec_schema import CompileSpec
from torch.export import ExportedProgram

from trt_et.builders import BuildOptions, BuildRequest, make_builder
from trt_et.edge_dialect import qualified_name
from trt_et.engine_info import EngineInfo, decode_blob
from trt_et.errors import (
    BackendConflictError,
    BlobError,
    BuilderError,
    BuilderUnavailable,
    OptionError,
    PartitionError,
)
from trt_et.lowering import LoweredPartition, lower_partition
from trt_et.partition_specs import PartitionPlan, PartitionSpecs
from trt_et.shapes import UnboundedDimension
from trt_et.target_device import explicit_device, parse_device, resolve_target_device

__all__ = ["TensorRTBackend", "check_no_conflict"]

_log = logging.getLogger(__name__)


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
        plan = _plan_of(compile_specs)
        try:
            lowered = lower_partition(edge_program, plan.name)
            blob = plan.builder.build(
                BuildRequest(plan.name, lowered, plan.device_id, plan.options)
            )
            info = _checked(blob, lowered)
        except (BuilderUnavailable, OptionError):
            raise
        except PartitionError:
            raise
        except Exception as error:
            # A builder may be anybody's: whatever it raises is reported with the partition.
            raise PartitionError(
                f"builder {plan.builder.name!r} failed on {_describe(plan, edge_program)}: "
                f"{error if isinstance(error, _TOLD) else f'{type(error).__name__}: {error}'}"
            ) from error
        resolve_target_device(plan.name, blob, compile_specs)
        _log.info(
            "partition %s: %s engine for cuda:%s, %d bytes, %d inputs, %d outputs",
            plan.name,
            info.builder or "foreign",
            info.device_id,
            len(blob),
            len(info.inputs),
            len(info.outputs),
        )
        return PreprocessResult(processed_bytes=blob)


_TOLD = (BuilderError, BlobError, UnboundedDimension)


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


def _plan_of(compile_specs: list[CompileSpec]) -> PartitionPlan:
    if isinstance(compile_specs, PartitionSpecs):
        return compile_specs.plan
    pinned = explicit_device(compile_specs)
    device_id = 0 if pinned is None else parse_device(pinned.decode(errors="replace"))
    return PartitionPlan("program", make_builder("auto"), device_id, BuildOptions())


def _checked(blob: object, lowered: LoweredPartition) -> EngineInfo:
    """The metadata of what a builder returned, if it is an engine for this partition."""
    if not isinstance(blob, bytes):
        raise BuilderError(f"it returned {type(blob).__name__}, not the bytes of an engine blob")
    info = decode_blob(blob).info
    for what, found, expected in (
        ("inputs", info.inputs, lowered.inputs),
        ("outputs", info.outputs, lowered.outputs),
    ):
        if len(found) != len(expected):
            raise BuilderError(f"its engine has {len(found)} {what}; expected {len(expected)}")
        for index, (have, want) in enumerate(zip(found, expected, strict=True)):
            # A foreign blob names bindings only; what it does not say cannot be compared.
            if (have.dtype and have.dtype != want.dtype) or (
                have.dtype and have.shape != want.shape
            ):
                raise BuilderError(
                    f"its engine's {what[:-1]} {index} ({have.name}) is {have.dtype} "
                    f"{list(have.shape)}; expected {want.dtype} {list(want.shape)}"
                )
    return info


def _describe(plan: PartitionPlan, program: ExportedProgram) -> str:
    names = [qualified_name(n) for n in program.graph.nodes if n.op == "call_function"]
    counted = {name: names.count(name) for name in dict.fromkeys(names)}
    shown = [name if n == 1 else f"{name} x{n}" for name, n in list(counted.items())[:12]]
    more = f" and {len(counted) - 12} more" if len(counted) > 12 else ""
    return f"partition {plan.name} ({len(names)} nodes: {', '.join(shown)}{more})"
