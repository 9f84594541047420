"""Delegates parts of a program to TensorRT, and chooses the GPU of each engine."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import AbstractContextManager
from dataclasses import fields, replace
from reprlib import Repr
from typing import Any, Final, NoReturn
from weakref import WeakKeyDictionary

import torch
from executorch.exir import to_edge_transform_and_lower
from executorch.exir.backend.compile_spec_schema import CompileSpec
from executorch.exir.backend.partitioner import DelegationSpec, Partitioner, PartitionResult
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.fx import Node

from trt_et import mends
from trt_et.backend import TensorRTBackend, check_no_conflict
from trt_et.blob.external import FILE_KEY, check_file_name
from trt_et.engine_program.in_place_buffers import find_in_place_buffers
from trt_et.engine_program.optimization_profiles import (
    ProfileOption,
    check_profiles,
    resolve_profiles,
)
from trt_et.engines import BuildOptions, EngineBuilder, make_builder
from trt_et.engines.cache import CacheChoice, choose_cache
from trt_et.engines.job import Job, JobSpecs
from trt_et.engines.prebuilt import PrebuiltBuilder
from trt_et.engines.progress import ProgressOption, checked_progress
from trt_et.engines.support_check import cached_support_check
from trt_et.engines.workers import checked_executor
from trt_et.errors import OptionError, PartitionError
from trt_et.graph.fragment import SupportCheck
from trt_et.graph.own_symbols import with_own_symbols
from trt_et.mends.check_export import (
    warn_bicubic_factors,
    warn_extremes_of_sizes,
    warn_unknown_operators,
)
from trt_et.mends.control_flow_results import warn_overwritten_results
from trt_et.mends.narrowed_sizes import warn_narrowed
from trt_et.ops.prebuilt_engine import PREBUILT_NAME
from trt_et.options import check_known
from trt_et.partition.analysis import Analysis
from trt_et.partition.make_partitions import make_partitions
from trt_et.partition.missing_kernels import warn_missing_kernels
from trt_et.partition.node_choice import Choice, NodeChoice
from trt_et.partition.ops_to_preserve import ops_to_preserve
from trt_et.partition.picture import draw_partitions
from trt_et.partition.report import Partition, PartitionReport
from trt_et.partition.tags import tag_partitions
from trt_et.partition.trial_partitions import without_undelegated
from trt_et.passes.before_partitioning import run_passes
from trt_et.precision.calibration import Calibration
from trt_et.precision.plan import Float32Plan, mark_float32
from trt_et.precision.program import PRECISION_DTYPES
from trt_et.target_device import explicit_device, parse_device

__all__ = ["Partition", "PartitionReport", "TensorRTPartitioner"]


DeviceChoice = str | int | torch.device | Callable[[Partition], str | int | torch.device]


# Of the operators that a refusal of full_graph=True lists.
_MOST_LINES: Final = 38

_repr: Final = Repr()  # Shortens long values, such as tensors.
_repr.maxother = _repr.maxstring = 80


class TensorRTPartitioner(Partitioner):
    """Delegates the operators that TensorRT supports; each partition becomes one engine.

    Args:
        compile_specs: Compile specs of every partition. A ``target_device`` spec is used verbatim;
            without one, each partition gets the device parsed out of its engine blob.
        builder: ``"auto"`` (the best real TensorRT installed), ``"tensorrt"``, ``"tensorrt_rtx"``
            (without Torch-TensorRT, its own ONNX parser makes the networks),
            ``"onnx"`` (a network; the runtime builds the engine, for any NVIDIA GPU),
            ``"reference"`` (runs on simulated GPUs), or an object whose class derives from
            ``trt_et.engines.EngineBuilder``.
        device: The GPU to build engines for: ``"cuda:1"``, a ``torch.device``, an index, or a
            function from ``Partition`` to one of them. None: the GPU that an explicit
            ``target_device`` names, else ``cuda:0``.
        compute_capabilities: Targets such as ``["8.6", "12.0"]``, if the builder can choose.
        optimization_level: TensorRT's builder optimization level, 0 to 5.
        precision: What engines compute in, and keep their weights in: ``"float16"`` or
            ``"bfloat16"``. Inputs, outputs and state keep their dtypes, and operators that need
            float32 keep it; ``report`` lists them (docs/guides/precision.md). None: the
            model's dtypes.
        float32_ops: With ``precision``, further operators and nodes that keep float32, in the form
            of ``excluded_ops``.
        calibration: With ``precision``, example inputs: a list of tuples, each with the inputs of
            one call. The program runs once for each on the CPU, and tensors with values beyond
            half of the largest float16 keep float32. State has its first values in each run.
            None: with float16, the example inputs of the exported program. Empty: no run.
        min_block_size: Smallest number of operators worth an engine. A partition with an operator
            that has no CPU kernel is always built.
        excluded_ops: Operators and nodes to leave to the CPU: overloads, packets, names such as
            ``"aten.mul"`` and ``"aten.mul.Tensor"``, names of nodes (in a branch also with the
            path: ``"cond/true/aten_mul_tensor"``), or functions from a node to a bool. Names come
            from the exported program or from ``report``; a name that matches nothing is an
            error. Functions get the nodes of the exported program and of the Edge program; the
            repeats of keys and values before an attention are gone by then, unless a name is given.
        full_graph: Refuse to lower a program with an operator that stays on the CPU, except those
            that compute dynamic sizes.
        optimization_profiles: Ranges of dynamic dimensions to tune engines for, each a mapping from
            the name of an input to its dimensions: ``[{"tokens": {1: 1}}, {"tokens": {1: (2, 64,
            512)}}]`` for one token, and for 2 to 512, best at 64. None: one profile, of the
            exported ranges, best at the exported sizes.
        workspace_size: Bytes of scratch memory that TensorRT may use; None: all.
        hardware_compatible: Engines for all GPUs from Ampere on (TensorRT-RTX's always are).
        build: Options of the engines, as an object; arguments of their own replace its fields.
        state_in_place: Let engines update a KV cache in place if TensorRT and the program allow it
            (docs/guides/state.md). False: they read and write the whole cache.
        debug_outputs: Let engines also write the result of each operator inside them, for
            ExecuTorch's ``Inspector.calculate_numeric_gap`` (docs/guides/debugging.md). Such
            engines are slower: TensorRT fuses less, and each result is copied to the host.
        external_engines: The name of a second file, without ``.ptd``, for engines, networks and
            their weights (docs/guides/deploying-in-cpp.md). None: they go into the program.
        executor: Builds engines in parallel: a ``concurrent.futures.Executor`` such as
            ``ProcessPoolExecutor``, ``ThreadPoolExecutor``, or Dask's ``Client.get_executor()``.
            None: this process builds them in turn. A build that ends the process of a
            ``ProcessPoolExecutor`` (SIGSEGV, out of memory) raises
            ``trt_et.errors.BuildCrashed``; in this process it ends the export.
        progress: True: progress bars if standard error is a terminal. False: none. A function: it
            gets every ``trt_et.engines.progress.ProgressEvent``.
        cache: Keep engines on disk and reuse them: True (the user's cache folder), a folder, or an
            ``trt_et.EngineCache``. None: the environment variable ``TRT_ET_CACHE`` decides; by
            default there is no cache.
        engine_options: Other fields of ``trt_et.engines.BuildOptions`` (docs/options.md):
            ``weight_streaming``, ``refittable``, ``dla_core``, ``dla_gpu_fallback``,
            ``torch_tensorrt_settings``.

    Attributes:
        compile_specs: The compile specs of every partition. To each partition's own, the backend
            adds the ``target_device`` of its engine.
        delegation_spec: The backend's name with these specs.
        report: The result of the last ``partition``; None before. Once the engines are built, it
            also has the kernels that a call of each TensorRT-RTX engine launches.

    Raises:
        OptionError: An option is unknown, or has an impossible value.
        BuilderUnavailable: The builder's packages are not installed; the message has the command.
        BackendConflictError: Another ``TensorRTBackend`` class is loaded in this process.
    """

    def __init__(
        self,
        compile_specs: Sequence[CompileSpec] | None = None,
        *,
        builder: str | EngineBuilder = "auto",
        device: DeviceChoice | None = None,
        compute_capabilities: Sequence[str | float] | None = None,
        optimization_level: int | None = None,
        precision: str | torch.dtype | None = None,
        float32_ops: Collection[Choice] = (),
        calibration: Sequence[tuple[Any, ...]] | None = None,
        min_block_size: int = 1,
        excluded_ops: Collection[Choice] = (),
        full_graph: bool = False,
        optimization_profiles: Sequence[ProfileOption] = (),
        workspace_size: int | None = None,
        hardware_compatible: bool = False,
        build: BuildOptions | None = None,
        state_in_place: bool = True,
        debug_outputs: bool = False,
        external_engines: str | None = None,
        executor: Executor | None = None,
        progress: ProgressOption = True,
        cache: CacheChoice = None,
        **engine_options: Any,  # noqa: ANN401
    ) -> None:
        super().__init__()
        arguments = inspect.signature(TensorRTPartitioner).parameters
        names = {known.name for known in fields(BuildOptions)}
        check_known(engine_options.keys() - names, [*arguments, *names])
        check_no_conflict()
        if type(min_block_size) is not int or min_block_size < 1:
            raise OptionError(f"min_block_size is {min_block_size!r}; expected an integer >= 1")
        if isinstance(compile_specs, str):
            raise OptionError(
                f"compile_specs is {compile_specs!r}; expected a list of CompileSpec objects. "
                f"Options have names, such as builder={compile_specs!r}"
            )
        if not isinstance(compile_specs, Sequence | None):
            kind = type(compile_specs).__name__
            raise OptionError(f"compile_specs is {kind}; expected a list of CompileSpec objects")
        self.compile_specs = list(compile_specs or ())
        if external_engines is not None:
            name = check_file_name(external_engines)
            self.compile_specs.append(CompileSpec(FILE_KEY, name.encode()))
        self.delegation_spec = DelegationSpec(TensorRTBackend.__name__, self.compile_specs)
        engine_options |= {
            "compute_capabilities": compute_capabilities,
            "optimization_level": optimization_level,
            "precision": precision,
            "workspace_size": workspace_size,
            "hardware_compatible": hardware_compatible,
            "debug_outputs": debug_outputs,
        }
        given = {name: v for name, v in engine_options.items() if v is not None and v is not False}
        if not isinstance(build, BuildOptions | None):
            raise OptionError(f"build is {type(build).__name__}; expected a BuildOptions object")
        self._options = replace(build or BuildOptions(), **given)
        self._builder = make_builder(builder)  # After the options: it imports TensorRT.
        self._builder.check_options(self._options)
        for name, flag in (("state_in_place", state_in_place), ("full_graph", full_graph)):
            if type(flag) is not bool:
                raise OptionError(f"{name} is {flag!r}; expected True or False")
        self._state_in_place = state_in_place
        self._profiles = check_profiles(optimization_profiles)
        self._min_block_size = min_block_size
        self._excluded = NodeChoice(excluded_ops)
        self._float32_ops = NodeChoice(float32_ops, "float32_ops")
        self._precision = PRECISION_DTYPES.get(str(self._options.precision))
        self._calibration = Calibration(calibration, self._precision)
        if precision is None and (float32_ops or calibration):
            name = "float32_ops" if float32_ops else "calibration"
            raise OptionError(f"{name} needs precision='float16' or 'bfloat16'")
        self._full_graph = full_graph
        self._executor = checked_executor(executor)
        self._progress = checked_progress(progress)
        self._cache = choose_cache(cache)
        self._device = self._checked_device(device)
        # ExecuTorch asks twice for each program.
        self._preserved: WeakKeyDictionary[ExportedProgram, list[OpOverload]] = WeakKeyDictionary()
        # Names in the options that match something in a program without partitions, whose methods
        # no later step sees.
        self._matched_elsewhere: set[tuple[str, str]] = set()
        self.report: PartitionReport | None = None

    def __repr__(self) -> str:
        options = {"builder": self._builder.name, **self._options.changed()}
        text = ", ".join(f"{name}={_repr.repr(value)}" for name, value in options.items())
        return f"TensorRTPartitioner({text})"

    def partition(self, exported_program: ExportedProgram) -> PartitionResult:
        """Tag the nodes of an Edge program that become engines; nothing is built yet."""
        check_no_conflict()
        warn_narrowed(exported_program)
        analysis, parts, report = self._partitions_of(exported_program)
        warn_overwritten_results(analysis.subgraphs)
        self.report = report
        if self._full_graph and report.tensors_not_delegated:
            raise PartitionError(
                "full_graph=True, but some operators stay on the CPU:\n"
                + "\n".join(report.not_delegated_lines(limit=_MOST_LINES))
            )
        warn_missing_kernels(report)
        if not parts:
            names = self._excluded.names | self._float32_ops.names
            self._matched_elsewhere |= names - analysis.unmatched.keys()
        profiles = resolve_profiles(exported_program, self._profiles)
        in_place = (
            find_in_place_buffers(exported_program, [nodes for _, nodes in parts])
            if self._state_in_place
            else [()] * len(parts)
        )
        tags: dict[str, DelegationSpec] = {}
        for (partition, _), aliased_outputs in zip(parts, in_place, strict=True):
            job = replace(
                self._job_of(partition),
                profiles=profiles,
                aliased_outputs=aliased_outputs,
                unmatched=analysis.unmatched,
                kernels=report.kernels,
            )
            specs = JobSpecs(self.compile_specs, job)
            tags[partition.name] = DelegationSpec(TensorRTBackend.__name__, specs)
        tag_partitions(analysis, {partition.name: nodes for partition, nodes in parts})
        return PartitionResult(tagged_exported_program=exported_program, partition_tags=tags)

    def explain(self, program: ExportedProgram) -> PartitionReport:
        """Report the partitions, boundaries and reasons of a program; build nothing.

        Args:
            program: As ``torch.export`` returns it; it is not changed.

        Raises:
            OptionError: A name in ``excluded_ops`` or ``float32_ops`` matches nothing in the
                program, or the program does not take the inputs in ``calibration``,
                or ``program`` is no exported program.
        """
        _check_exported(program, "explain")
        explainer = _Explainer(self)
        to_edge_transform_and_lower(program, partitioner=[explainer])
        self.report = explainer.report
        for message in explainer.unmatched.values():
            raise OptionError(message)
        return explainer.report

    def _partitions_of(
        self, program: ExportedProgram
    ) -> tuple[Analysis, list[tuple[Partition, list[Node]]], PartitionReport]:
        """Analyse an Edge program, mark the calls that the caller chooses, and partition it."""
        analysis = Analysis.of(program, (self._excluded, self._float32_ops))
        precision = self._precision
        if precision is not None:
            is_chosen = self._float32_ops.includes
            mark_float32(program, analysis.subgraphs, is_chosen, self._calibration)
        with self._support_check() as check:
            parts, report = make_partitions(
                analysis,
                check,
                self._excluded,
                self._min_block_size,
                self._builder.without_int8,
                float32=Float32Plan(check, precision) if precision is not None else None,
            )
        return analysis, parts, replace(report, made_by=self._builder.made_by)

    def ops_to_not_decompose(
        self, ep: ExportedProgram
    ) -> tuple[list[OpOverload], Callable[[Node], bool] | None]:
        """Return the operators of this program that engines run undecomposed.

        ExecuTorch calls this twice in a row for each program.
        """
        preserved = self._preserved.get(ep)
        if preserved is None:
            self._excluded.mark(ep)  # Passes may have made operators that the caller names.
            with self._support_check() as check:
                operators = ops_to_preserve(ep, check, self._excluded, self._float32_ops)
            preserved = without_undelegated(operators, ep, self._delegated)
            self._preserved[ep] = preserved
        return list(preserved), None

    def _delegated(self, edge: ExportedProgram) -> set[Node]:
        _, parts, _ = self._partitions_of(edge)
        return {node for _, nodes in parts for node in nodes}

    def __iter__(self) -> NoReturn:
        """Refuse ``partitioner=TensorRTPartitioner()``: ExecuTorch takes a list."""
        raise OptionError(
            "partitioner is one TensorRTPartitioner; expected a list: "
            "partitioner=[TensorRTPartitioner()]"
        )

    def transform_for_pre_decomposition(self, exported_program: ExportedProgram) -> ExportedProgram:
        """Apply the passes of ``trt_et.passes.before_partitioning``.

        Args:
            exported_program: As ``torch.export`` returns it.

        Raises:
            OptionError: The program is no exported program.
            PartitionError: An engine in the program cannot be lifted, the program was prepared for
                quantization and not converted, or weights have no values.
        """
        _check_exported(exported_program, "to_edge_transform_and_lower")
        mends.check(exported_program)
        program = with_own_symbols(exported_program)
        mends.mend_sizes(program)
        for choice in (self._excluded, self._float32_ops):
            choice.mark(program)
        program = run_passes(program, self._excluded, self._float32_ops, self._options)
        warn_extremes_of_sizes(program)
        warn_unknown_operators(program)
        warn_bicubic_factors(program)
        self._calibration.mark(program, self._float32_ops.includes)
        return program

    def _support_check(self) -> AbstractContextManager[SupportCheck]:
        return cached_support_check(self._builder, self._options, self._cache)

    def _job_of(self, partition: Partition) -> Job:
        device = self._device(partition) if callable(self._device) else self._device
        return Job(
            partition.name,
            PrebuiltBuilder() if PREBUILT_NAME in partition.operators else self._builder,
            parse_device(device),
            self._options,
            cache=self._cache,
            executor=self._executor,
            progress=self._progress,
            matched_elsewhere=self._matched_elsewhere,
        )

    def _checked_device(self, device: DeviceChoice | None) -> DeviceChoice:
        pinned = explicit_device(self.compile_specs)
        if device is not None:
            return device if callable(device) else parse_device(device)
        if pinned is None:
            return 0
        try:
            return parse_device(pinned.decode(errors="replace"))
        except OptionError:
            # Verbatim: ExecuTorch judges the spec (b"cpu" keeps tensors on the host).
            return 0


class _Explainer(TensorRTPartitioner):
    """Partitions as another partitioner does, and delegates nothing."""

    report: PartitionReport

    def __init__(self, explained: TensorRTPartitioner) -> None:
        self.__dict__.update(explained.__dict__, report=PartitionReport((), ()))
        self.unmatched: Mapping[tuple[str, str], str] = {}

    def partition(self, exported_program: ExportedProgram) -> PartitionResult:
        """Report the partitions."""
        analysis, parts, report = self._partitions_of(exported_program)
        self.report = replace(report, picture=draw_partitions(analysis, parts, report))
        self.unmatched = analysis.unmatched
        return PartitionResult(tagged_exported_program=exported_program, partition_tags={})


def _check_exported(program: object, function: str) -> None:
    if not isinstance(program, ExportedProgram):
        raise OptionError(
            f"{function}() got {type(program).__name__}; expected an exported program: "
            f"{function}(torch.export.export(model.eval(), example_inputs))"
        )
