"""The job of an engine: how to build it, and how far that is.

``partition()`` makes a job for each partition. ExecuTorch hands the very list that the partitioner
gave as ``DelegationSpec.compile_specs`` to ``BackendDetails.preprocess``. Compile specs end up in
the ``.pte``; the job, which only the build needs, is an attribute of the list, and of each copy of
it.

``list(specs)`` loses that attribute. The partition's nodes still have the partitioner's tag, so
``job_of`` can raise an error instead of building an engine with other options.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, MutableMapping
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from typing import Any, Final

import torch
from executorch.exir.backend.compile_spec_schema import CompileSpec
from filelock import BaseFileLock
from torch.export import ExportedProgram

from trt_et.blob.model import EngineInfo
from trt_et.engine_program.edge_to_aten import qualified_name
from trt_et.engine_program.in_place_buffers import InPlaceBuffer
from trt_et.engine_program.optimization_profiles import OptimizationProfile
from trt_et.engines.base import BuildRequest, EngineBuilder
from trt_et.engines.cache import EngineCache
from trt_et.engines.progress import ProgressOption, ProgressSession
from trt_et.errors import BlobError, BuilderError, BuilderUnavailable, OptionError, PartitionError
from trt_et.graph.symbolic_shapes import UnboundedDimension
from trt_et.inspection import EngineKernels
from trt_et.options import BuildOptions


@dataclass(frozen=True)
class Engine:
    """An engine, and facts of its first partition.

    Attributes:
        partition: The first partition that needed it.
        blob: Its blob.
        info: The blob's metadata.
        origin: ``"built"`` or ``"cached"``.
        named_data: The tensors that the blob refers to, by key.
        kernels: The kernels that a call of it launches; None if they are not known.
        names: The names of calls in the engine, with one partition's names for them.
    """

    partition: str
    blob: bytes
    info: EngineInfo
    origin: str
    named_data: Mapping[str, torch.Tensor]
    kernels: EngineKernels | None
    names: Mapping[str, str] = field(default_factory=dict)


@dataclass(eq=False, repr=False)
class Job:
    """The engine of one partition: wanted, then being built, then there.

    Attributes:
        name: The partition's name (its delegation tag).
        builder: Builds the engine.
        device_id: Index of the GPU that the engine is for.
        options: The caller's options.
        cache: The engine cache; None: no cache.
        executor: Runs the build; None: this process runs it.
        profiles: Ranges of the program's symbols to tune the engine for.
        aliased_outputs: The buffers that the engine may write in place.
        progress: The partitioner's option; see ``trt_et.engines.progress.ProgressSession``.
        unmatched: Messages about the names in the partitioner's options that match nothing in the
            program.
        matched_elsewhere: Those of them that match something in a program without partitions; the
            jobs of one partitioner share this object.
        kernels: Gets the kernels of a call of the engine, if they are known, by ``name``.
        program: The partition, once ``start`` was called.
        listener: Hears of the job.
        request: The builder's input; only while the engine is looked up and built.
        names: The names of calls in the engine, with the partition's names for them.
        equals: Later jobs of equal partitions, which wait for the engine.
        key: The engine's key in the cache; empty: it is not cached.
        lock: Keeps other processes from building the engine.
        engine: The engine, once it is there.
    """

    name: str
    builder: EngineBuilder
    device_id: int
    options: BuildOptions
    cache: EngineCache | None = None
    executor: Executor | None = None
    profiles: tuple[OptimizationProfile, ...] = ()
    aliased_outputs: tuple[InPlaceBuffer, ...] = ()
    progress: ProgressOption = False
    unmatched: Mapping[tuple[str, str], str] = field(default_factory=dict)
    matched_elsewhere: Collection[tuple[str, str]] = ()
    kernels: MutableMapping[str, EngineKernels] = field(default_factory=dict)
    program: ExportedProgram = field(init=False)
    listener: ProgressSession = field(init=False)
    request: BuildRequest = field(init=False)
    names: Mapping[str, str] = field(default_factory=dict, init=False)
    equals: list[Job] = field(default_factory=list, init=False)
    key: str = field(default="", init=False)
    lock: BaseFileLock | None = field(default=None, init=False)
    engine: Engine | None = field(default=None, init=False)

    def started(self, program: ExportedProgram, listener: ProgressSession) -> Job:
        """Return a job for one build of the partition; this one may be built again."""
        job = replace(self)
        job.program, job.listener = program, listener
        return job

    def finish(self, engine: Engine) -> None:
        """Take the engine, also for the jobs that wait for it, and free what building it needed."""
        self.release()
        for job in (self, *self.equals):
            job.engine = replace(engine, names=job.names)
            job.listener.engine_done(job.name)

    def share_with(self, other: Job) -> None:
        """Give the engine to a job of an equal partition, now or once it is there."""
        other.release()
        if self.engine is None:
            self.equals.append(other)
        else:
            other.finish(self.engine)

    def release(self) -> None:
        """Free the lock, and the memory of the request."""
        if self.lock is not None:
            self.lock.release()
        vars(self).pop("request", None)

    def describe(self) -> str:
        """Return the partition's name and operators, for messages."""
        nodes = [n for n in self.program.graph.nodes if n.op == "call_function"]
        counted = Counter(map(qualified_name, nodes))  # In order of appearance.
        shown = [name if n == 1 else f"{name} x{n}" for name, n in list(counted.items())[:12]]
        more = f" and {len(counted) - 12} more" if len(counted) > 12 else ""
        return f"partition {self.name} ({len(nodes)} nodes: {', '.join(shown)}{more})"

    def failed(self, error: Exception) -> Exception:
        """Return what to raise (``from error``) if the build raised ``error``."""
        if isinstance(error, BuilderUnavailable | OptionError | PartitionError):
            return error
        is_own = isinstance(error, BuilderError | BlobError | UnboundedDimension)
        reason = error if is_own else f"{type(error).__name__}: {error}"
        return PartitionError(
            f"builder {self.builder.name!r} failed on {self.describe()}: {reason}"
        )


# The partitioner's names of partitions, see trt_et.partition.report.
_TAG: Final = re.compile(r"tensorrt_\d+(_\w+)?")


class JobSpecs(list[CompileSpec]):
    """A partition's compile specs, with its job."""

    def __init__(self, specs: Iterable[CompileSpec], job: Job) -> None:
        super().__init__(CompileSpec(spec.key, bytes(spec.value)) for spec in specs)
        self.job = job

    def copy(self) -> JobSpecs:
        """Return a copy with the same job."""
        return JobSpecs(self, self.job)

    __copy__ = copy

    def __deepcopy__(self, memo: dict[int, Any]) -> JobSpecs:
        # The job is shared: a builder need not be copyable.
        return self.copy()

    def __reduce__(self) -> tuple[Any, ...]:
        # A pickled program needs only its specs.
        return (list, (list(self),))


def check_names(jobs: Iterable[Job]) -> None:
    """Check that each name in a partitioner's options matches something in one of its programs.

    Raises:
        OptionError: A name matches nothing.
    """
    of_partitioners: dict[int, list[Job]] = {}
    for job in jobs:
        of_partitioners.setdefault(id(job.matched_elsewhere), []).append(job)
    for first, *others in of_partitioners.values():
        for name, message in first.unmatched.items():
            if name not in first.matched_elsewhere and all(name in o.unmatched for o in others):
                raise OptionError(message)


def job_of(program: ExportedProgram, specs: list[CompileSpec]) -> Job | None:
    """Return a partition's job; None if no ``TensorRTPartitioner`` made it.

    Args:
        program: The partition, as ``preprocess`` gets it.
        specs: Its compile specs.

    Raises:
        PartitionError: The partitioner made it, but ``specs`` lost the job.
    """
    if isinstance(specs, JobSpecs):
        return specs.job
    tags = (node.meta.get("delegation_tag") for node in program.graph.nodes)
    lost = next((tag for tag in tags if _TAG.fullmatch(str(tag))), None)
    if lost is not None:
        raise PartitionError(
            f"partition {lost}: its builder, device and options are lost, because its compile "
            f"specs are a plain {type(specs).__name__} now. Pass the list in "
            "DelegationSpec.compile_specs on as it is, or a copy of it (copy.copy, .copy()); add "
            "specs with TensorRTPartitioner(compile_specs=...)"
        )
    return None
