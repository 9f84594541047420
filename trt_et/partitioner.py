"""Which parts of a program become engines, and for which GPU."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Executor
from typing import Any

import torch
from executorch.exir.backend.compile_spec_schema import CompileSpec
from executorch.exir.backend.partitioner import DelegationSpec, Partitioner, PartitionResult
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.fx import Node

from trt_et.backend import TensorRTBackend, check_no_conflict
from trt_et.builders import BuildOptions, EngineBuilder, make_builder
from trt_et.builders.prebuilt import PrebuiltBuilder
from trt_et.cache.choose import CacheChoice, choose_cache, temporary_cache
from trt_et.errors import OptionError, PartitionError
from trt_et.lowering.in_place_buffers import InPlaceBuffer, find_in_place_buffers
from trt_et.lowering.optimization_profiles import (
    OptimizationProfile,
    ProfileOption,
    check_profiles,
    resolve_profiles,
)
from trt_et.ops.prebuilt_engine import PREBUILT_NAME
from trt_et.partition.crash_search import CrashSearch, OnCrash, checked_on_crash
from trt_et.partition.dry_run import dry_run
from trt_et.partition.excluded_ops import ExcludedOp, ExcludedOps
from trt_et.partition.ops_to_preserve import ops_to_preserve
from trt_et.partition.plan import plan_partitions
from trt_et.partition.report import Partition, PartitionReport
from trt_et.partition.support_check import cached_support_check
from trt_et.partition.tags import clear_tags, tag_constants
from trt_et.passes.before_partitioning import run_passes
from trt_et.passes.split_to_slices import warn_specialized_dims
from trt_et.scheduler.build_plan import PartitionPlan, PartitionSpecs
from trt_et.scheduler.executors import make_runner
from trt_et.scheduler.progress import ProgressOption, checked_progress
from trt_et.target_device import explicit_device, parse_device

__all__ = ["Partition", "PartitionReport", "TensorRTPartitioner"]


DeviceChoice = str | int | torch.device | Callable[[Partition], str | int | torch.device]


class TensorRTPartitioner(Partitioner):
    """Delegates what TensorRT can run of an exported program; each partition becomes one engine.

    Args:
        compile_specs: Given to every partition. A ``target_device`` spec among them is used
            verbatim; otherwise each partition gets the device parsed out of its engine blob.
        builder: ``"auto"`` (the best real TensorRT installed), ``"tensorrt"``, ``"tensorrt_rtx"``,
            ``"reference"`` (runs on simulated GPUs), or an object with a ``name`` and a
            ``build(request)`` method.
        device: The GPU to build engines for: ``"cuda:1"``, a ``torch.device``, an index, or a
            function from :class:`Partition` to one of them. None: the GPU that an explicit
            ``target_device`` names, else ``cuda:0``.
        compute_capabilities: Targets such as ``["8.6", "12.0"]``, where the builder can choose.
        optimization_level: TensorRT's builder optimization level, 0 to 5.
        min_block_size: Smallest number of operators worth an engine. Partitions that hold an
            operator without a CPU kernel are built however small they are.
        excluded_ops: What to leave to the CPU: operators (overloads, packets, or names such as
            ``"aten.mul"`` and ``"aten.mul.Tensor"``), names of nodes (in a branch also with its
            path: ``"cond/true/aten_mul_tensor"``), or functions from a node to a bool. Names may be
            those of the exported program or those of :attr:`report`; one that matches nothing is an
            error. Functions are called with the exported program's nodes and the Edge program's.
        full_graph: Refuse to lower a program of which anything stays out, but for what computes
            dynamic sizes.
        optimization_profiles: Ranges of dynamic dimensions to tune engines for, each a mapping from
            the name of an input to its dimensions: ``[{"tokens": {1: 1}}, {"tokens": {1: (2, 64,
            512)}}]`` for one token, and for 2 to 512, best at 64. At run time the first that fits
            is used. None: one profile, of the exported ranges, best at the exported sizes.
        workspace_size: Bytes of scratch memory that TensorRT may use; None: all.
        hardware_compatible: Engines for all GPUs from Ampere on (TensorRT-RTX's always are).
        version_compatible: Refused, with the reason: no other TensorRT version would run them.
        refittable: Engines whose weights TensorRT's refitter can replace.
        weight_streaming: Engines that may keep weights in host memory (the compile spec and load
            option ``weight_streaming_budget`` says how much).
        state_in_place: Let engines update a KV cache in place, where TensorRT can and the
            program allows it (docs/guides/state.md). False: they read and write all of it.
        settings: Further fields of Torch-TensorRT's ``CompilationSettings``.
        executor: Where engines are built, all at once: a ``concurrent.futures.Executor`` such as
            ``ProcessPoolExecutor``, ``ThreadPoolExecutor``, or Dask's ``Client.get_executor()``.
            None: in this process, one after the other.
        scratch: Folder for the files that go to other processes and back; machines that build for
            this one must see it too. None: where temporary files go.
        on_crash: What to do where the build of a partition ends its process (SIGSEGV, out of
            memory). ``"error"``: raise :class:`trt_et.errors.BuildCrashed`. ``"split"``: delegate
            it in smaller partitions, and leave to the CPU what crashes on its own. Both build in
            another process. None: builds run where ``executor`` says; a crash in this process
            ends it.
        progress: True: progress bars, where standard error is a terminal. False: none. Or a
            function that gets every :class:`trt_et.scheduler.progress.ProgressEvent`.
        cache: Keep engines on disk, and take them from there: True (the user's cache folder), a
            folder, or an :class:`trt_et.EngineCache`. None: what the environment variable
            ``TRT_ET_CACHE`` says, by default no cache.

    Attributes:
        report: What the last :meth:`partition` decided; None before.

    Raises:
        OptionError: An option has an impossible value.
        BuilderUnavailable: The builder's packages are not installed; says how to install them.
        BackendConflictError: Another ``TensorRTBackend`` class is loaded in this process.
    """

    def __init__(
        self,
        compile_specs: Sequence[CompileSpec] | None = None,
        *,
        builder: str | EngineBuilder = "auto",
        device: DeviceChoice | None = None,
        compute_capabilities: Sequence[str] | None = None,
        optimization_level: int | None = None,
        min_block_size: int = 1,
        excluded_ops: Collection[ExcludedOp] = (),
        full_graph: bool = False,
        optimization_profiles: Sequence[ProfileOption] = (),
        workspace_size: int | None = None,
        hardware_compatible: bool = False,
        version_compatible: bool = False,
        refittable: bool = False,
        weight_streaming: bool = False,
        state_in_place: bool = True,
        settings: Mapping[str, Any] | None = None,
        executor: Executor | None = None,
        scratch: str | os.PathLike[str] | None = None,
        on_crash: OnCrash | None = None,
        progress: ProgressOption = True,
        cache: CacheChoice = None,
    ) -> None:
        super().__init__()
        check_no_conflict()
        if type(min_block_size) is not int or min_block_size < 1:
            raise OptionError(f"min_block_size is {min_block_size!r}; expected an integer >= 1")
        self._compile_specs = list(compile_specs or ())
        self._builder = make_builder(builder)
        self._options = BuildOptions(
            compute_capabilities,  # type: ignore[arg-type]
            optimization_level,
            settings or {},
            workspace_size=workspace_size,
            hardware_compatible=hardware_compatible,
            version_compatible=version_compatible,
            refittable=refittable,
            weight_streaming=weight_streaming,
        )
        if type(state_in_place) is not bool:
            raise OptionError(f"state_in_place is {state_in_place!r}; expected True or False")
        self._state_in_place = state_in_place
        self._profiles = check_profiles(optimization_profiles)
        self._min_block_size = min_block_size
        self._excluded = ExcludedOps(excluded_ops)
        self._full_graph = full_graph
        on_crash = checked_on_crash(on_crash)
        self._runner = make_runner(executor, scratch, isolated=on_crash is not None)
        self._progress = checked_progress(progress)
        self._cache = choose_cache(cache)
        self._search: CrashSearch | None = None
        if on_crash == "split":
            self._search = CrashSearch(min_block_size, self._trial)
            # What is built on trial is not built again.
            self._cache = self._cache or temporary_cache()
        self._device = self._checked_device(device)
        self._preserved: tuple[Callable[[], object], list[OpOverload]] = (lambda: None, [])
        self.report: PartitionReport | None = None

    def partition(self, exported_program: ExportedProgram) -> PartitionResult:
        """Tag the nodes of an Edge program that become engines; nothing is built yet."""
        check_no_conflict()
        warn_specialized_dims(exported_program)
        clear_tags(exported_program)
        tags: dict[str, DelegationSpec] = {}
        plan = self._plan(exported_program, self._search)
        if self._full_graph and self.report is not None and self.report.tensors_not_delegated:
            raise PartitionError(f"full_graph=True, but some operators stay out:\n{self.report}")
        profiles = resolve_profiles(exported_program, self._profiles)
        writable = self._in_place_buffers(exported_program, plan)
        for (partition, nodes), aliased_outputs in zip(plan, writable, strict=True):
            for node in nodes:
                node.meta["delegation_tag"] = partition.name
            specs = self._specs(partition, profiles, aliased_outputs)
            tags[partition.name] = DelegationSpec(TensorRTBackend.__name__, specs)
        tag_constants(exported_program)
        return PartitionResult(tagged_exported_program=exported_program, partition_tags=tags)

    def explain(self, program: ExportedProgram) -> PartitionReport:
        """What lowering this program would do: partitions, boundaries, reasons. Builds nothing.

        Args:
            program: As ``torch.export`` returns it; it is not changed.

        Raises:
            OptionError: A name in ``excluded_ops`` matches nothing in the program.
        """
        self.report = PartitionReport((), ())
        dry_run(program, self, self._plan)
        self._excluded.check_names()
        return self.report

    def _in_place_buffers(
        self, program: ExportedProgram, plan: Sequence[tuple[Partition, list[Node]]]
    ) -> list[tuple[InPlaceBuffer, ...]]:
        if not self._state_in_place:
            return [()] * len(plan)
        return find_in_place_buffers(program, [nodes for _, nodes in plan])

    def _plan(
        self, program: ExportedProgram, search: CrashSearch | None = None
    ) -> list[tuple[Partition, list[Node]]]:
        self._excluded.add_known_names(program)
        with cached_support_check(self._builder, self._options, self._cache) as check:
            parts, self.report = plan_partitions(
                program, check, self._excluded, self._min_block_size, search
            )
        return parts

    def _trial(
        self, program: ExportedProgram, partition: Partition, nodes: list[Node]
    ) -> DelegationSpec:
        """How to build one partition on trial."""
        (aliased_outputs,) = self._in_place_buffers(program, [(partition, nodes)])
        profiles = resolve_profiles(program, self._profiles)
        specs = self._specs(partition, profiles, aliased_outputs)
        return DelegationSpec(TensorRTBackend.__name__, specs)

    def ops_to_not_decompose(
        self, ep: ExportedProgram
    ) -> tuple[list[OpOverload], Callable[[Node], bool] | None]:
        """The operators of this program whose every call TensorRT runs undecomposed.

        ExecuTorch asks twice for each program, one time after the other.
        """
        if self._preserved[0]() is not ep:
            with cached_support_check(self._builder, self._options, self._cache) as check:
                found = ops_to_preserve(ep.graph_module, check, self._excluded)
            self._preserved = (weakref.ref(ep), found)
        return list(self._preserved[1]), None

    def transform_for_pre_decomposition(self, exported_program: ExportedProgram) -> ExportedProgram:
        """The program after the passes of :mod:`trt_et.passes.before_partitioning`.

        Raises:
            PartitionError: An engine in the program cannot be lifted.
        """
        self._excluded.add_known_names(exported_program)
        program = run_passes(exported_program, self._excluded, self._options)
        if self._search is not None:
            self._search.add_weights(program)
        return program

    def _specs(
        self,
        partition: Partition,
        profiles: tuple[OptimizationProfile, ...],
        aliased_outputs: tuple[InPlaceBuffer, ...],
    ) -> PartitionSpecs:
        device = self._device(partition) if callable(self._device) else self._device
        plan = PartitionPlan(
            partition.name,
            PrebuiltBuilder() if PREBUILT_NAME in partition.operators else self._builder,
            parse_device(device),
            self._options,
            cache=self._cache,
            profiles=profiles,
            aliased_outputs=aliased_outputs,
            runner=self._runner,
            progress=self._progress,
            check=self._excluded.check_names,
        )
        return PartitionSpecs(self._compile_specs, plan)

    def _checked_device(self, device: DeviceChoice | None) -> DeviceChoice:
        pinned = explicit_device(self._compile_specs)
        if device is not None:
            return device if callable(device) else parse_device(device)
        if pinned is None:
            return 0
        try:
            return parse_device(pinned.decode(errors="replace"))
        except OptionError:
            # Verbatim: ExecuTorch judges the spec (b"cpu" keeps tensors on the host).
            return 0
