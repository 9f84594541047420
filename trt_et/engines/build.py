"""Builds the engines of an export: each distinct one once, or takes it from the cache.

Each partition is lowered, compared with the earlier partitions, looked up in the cache and built
before the next one is lowered. A build's memory is freed as soon as its engine exists.
"""

from __future__ import annotations

import contextlib
import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace

import torch
from filelock import BaseFileLock
from torch.export import ExportedProgram

from trt_et.blob.codec import decode_blob
from trt_et.blob.model import EngineInfo
from trt_et.engine_program.edge_to_aten import qualified_name
from trt_et.engine_program.lower import lower_partition
from trt_et.engine_program.lowered_partition import LoweredPartition
from trt_et.engines.base import BuildRequest
from trt_et.engines.cache import EngineCache
from trt_et.engines.key import (
    WeightDigests,
    builder_fingerprint,
    engine_key,
    request_digest,
    sample_digest,
)
from trt_et.engines.partition_build import PartitionBuild
from trt_et.engines.partition_edits import edit_partition
from trt_et.engines.progress import ProgressOption, ProgressSession
from trt_et.engines.workers import BuildJob, build_all, explained
from trt_et.errors import BlobError, BuilderError
from trt_et.graph.tracing import unchanged_by_tracing
from trt_et.inspection import EngineKernels, read_kernels

_log = logging.getLogger(__name__)


@dataclass
class Engine:
    """An engine, and the partitions that share it.

    Attributes:
        partition: The first partition that needed it.
        blob: Its blob.
        info: The blob's metadata.
        origin: ``"built"`` or ``"cached"``.
        named_data: The tensors that the blob refers to, by key.
        names: The names of calls in the engine, with one partition's names for them.
        kernels: What a call of it launches; None if that is not known.
    """

    partition: str
    blob: bytes
    info: EngineInfo
    origin: str
    named_data: Mapping[str, torch.Tensor] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    kernels: EngineKernels | None = None


def build_engines(partitions: Sequence[tuple[ExportedProgram, PartitionBuild]]) -> list[Engine]:
    """Return the engine of every partition, in order; equal partitions share one.

    Args:
        partitions: Edge dialect, with real weights, and how to build them. They are not changed.

    Raises:
        PartitionError: An engine could not be built, or is not one for its partition.
    """
    session = _Session()
    with contextlib.ExitStack() as stack:
        progress = _sessions([how.progress for _, how in partitions])
        for listener in dict.fromkeys(progress):
            stack.enter_context(listener)
        stack.callback(session.close)
        wanted = [
            _Wanted(program, how, listener)
            for (program, how), listener in zip(partitions, progress, strict=True)
        ]
        groups: dict[int, list[_Wanted]] = {}
        for item in wanted:
            groups.setdefault(id(item.how.executor), []).append(item)
        for group in groups.values():
            session.build(group[0].how.executor, group)
    return [_engine_of(item) for item in wanted]


@dataclass(eq=False)
class _Wanted:
    """A partition, and its engine once it is there."""

    program: ExportedProgram
    how: PartitionBuild
    progress: ProgressSession
    engine: Engine | None = None
    same_as: _Wanted | None = None
    names: Mapping[str, str] = field(default_factory=dict)
    equals: list[_Wanted] = field(default_factory=list)

    def describe(self) -> str:
        nodes = [n for n in self.program.graph.nodes if n.op == "call_function"]
        counted = Counter(map(qualified_name, nodes))  # In order of appearance.
        shown = [name if n == 1 else f"{name} x{n}" for name, n in list(counted.items())[:12]]
        more = f" and {len(counted) - 12} more" if len(counted) > 12 else ""
        return f"partition {self.how.name} ({len(nodes)} nodes: {', '.join(shown)}{more})"


@dataclass(eq=False)
class _Pending:
    """An engine that this process, or another one, builds."""

    wanted: _Wanted
    job: BuildJob
    key: str = ""
    lock: BaseFileLock | None = None


class _Session:
    """One export's builds."""

    def __init__(self) -> None:
        self._digests = WeightDigests()
        self._seen: dict[object, list[tuple[_Wanted, Mapping[str, torch.Tensor]]]] = {}
        self._pending: dict[BuildJob, _Pending] = {}
        self._elsewhere: list[_Pending] = []

    def build(self, executor: Executor | None, group: Iterable[_Wanted]) -> None:
        """Build the engines of these partitions that are not there yet."""
        self._run(executor, self._jobs(group))
        # Wait only now that this process holds no lock: two processes that wait for each other's
        # engine while each holds a lock would wait for ever.
        while self._elsewhere:
            self._run(executor, self._waited_for(self._elsewhere.pop(0)))

    def close(self) -> None:
        """Release all locks."""
        for pending in self._pending.values():
            if pending.lock is not None:
                pending.lock.release()

    def _run(self, executor: Executor | None, jobs: Iterator[BuildJob]) -> None:
        with contextlib.closing(build_all(executor, jobs)) as results:
            for job, blob in results:
                self._finish(self._pending.pop(job), blob)
                del job, blob  # Free their memory before the next partition is lowered.

    def _jobs(self, group: Iterable[_Wanted]) -> Iterator[BuildJob]:
        for wanted in group:
            try:
                job = self._job(wanted)
            except Exception as error:
                # Users' programs can fail in any way; the report names the partition.
                raise explained(error, wanted.how.builder, wanted.describe()) from error
            if job is not None:
                yield job
            del job

    def _job(self, wanted: _Wanted) -> BuildJob | None:
        """Return what to build for a partition; None if its engine is there, or on its way."""
        how, cache = wanted.how, wanted.how.cache
        lowered = lower_partition(wanted.program, how.name, how.profiles, how.aliased_outputs)
        wanted.names = lowered.names
        lowered = edit_partition(lowered, wanted.program, how.options, how.profiles)
        timings = cache.timings_folder if cache is not None else None
        monitor = wanted.progress.monitor(how.name)
        request = BuildRequest(how.name, lowered, how.device_id, how.options, timings, monitor)
        digest = request_digest(request)
        if digest is not None and self._is_known(wanted, digest, lowered.sources):
            return None
        pending = _Pending(wanted, BuildJob(how.builder, request, wanted.describe))
        fingerprint = builder_fingerprint(how.builder) if cache is not None else ""
        if cache is not None and digest is not None and fingerprint:
            weights = self._digests.of(lowered.sources)
            pending.key = engine_key(how.builder.name, fingerprint, digest, weights)
            if self._load(pending, cache):
                return None
            pending.lock = cache.lock(pending.key, wait=False)
            if pending.lock is None:
                self._elsewhere.append(pending)
                return None
            if self._load(pending, cache):  # Stored since we looked.
                pending.lock.release()
                return None
        self._pending[pending.job] = pending
        return pending.job

    def _waited_for(self, pending: _Pending) -> Iterator[BuildJob]:
        cache = pending.wanted.how.cache
        assert cache is not None
        _log.info("partition %s: another process builds its engine", pending.wanted.how.name)
        pending.lock = cache.lock(pending.key, wait=True)
        self._pending[pending.job] = pending
        if not self._load(pending, cache):
            yield pending.job
        elif pending.lock is not None:
            pending.lock.release()
            del self._pending[pending.job]

    def _is_known(self, wanted: _Wanted, digest: str, weights: Mapping[str, torch.Tensor]) -> bool:
        """Check whether an earlier partition is equal; read weights only if all else is equal."""
        kind = (id(wanted.how.builder), digest, sample_digest(weights))
        alike = self._seen.setdefault(kind, [])
        for other, its_weights in alike:
            if self._digests.are_equal(its_weights, weights):
                wanted.same_as = other
                if other.engine is None:
                    other.equals.append(wanted)
                else:
                    wanted.progress.engine_done(wanted.how.name)
                return True
        alike.append((wanted, weights))  # Kept, or their memory could become another's.
        return False

    def _load(self, pending: _Pending, cache: EngineCache) -> bool:
        blob = cache.load(pending.key)
        if blob is None:
            return False
        try:
            # The cache has checked every byte.
            info = _checked_info(blob, pending.job.request.lowered, verify=False)
        except (BlobError, BuilderError) as error:
            cache.discard(pending.key, str(error))
            return False
        self._set(pending, Engine(pending.wanted.how.name, blob, info, "cached"))
        return True

    def _finish(self, pending: _Pending, blob: bytes) -> None:
        wanted, job = pending.wanted, pending.job
        try:
            sent = wanted.how.executor is not None
            verify = sent or not getattr(job.builder, "verified", False)
            info = _checked_info(blob, job.request.lowered, verify=verify)
            cache = wanted.how.cache
            # A worker on another machine may have another GPU than the one in the key.
            fits = not info.gpu_name or info.gpu_name in builder_fingerprint(job.builder)
            if pending.lock is not None and cache is not None and fits:
                cache.store(pending.key, blob)
            self._set(pending, Engine(wanted.how.name, blob, info, "built"))
        except (BlobError, BuilderError) as error:
            raise job.failed(error) from error
        finally:
            if pending.lock is not None:
                pending.lock.release()

    def _set(self, pending: _Pending, engine: Engine) -> None:
        wanted, job = pending.wanted, pending.job
        if named_data := getattr(job.builder, "named_data", None):
            lowered = job.request.lowered
            with unchanged_by_tracing(lowered.program.graph.nodes):
                engine.named_data = named_data(lowered, engine.blob)
        engine.kernels = read_kernels(decode_blob(engine.blob, verify=False).engine)
        wanted.engine, info = engine, engine.info
        _log.info(
            "partition %s: %s engine for cuda:%s, %s, %d bytes, %d inputs, %d outputs, %d in place",
            engine.partition,
            info.builder or "foreign",
            info.device_id,
            engine.origin,
            len(engine.blob),
            len(info.inputs),
            len(info.outputs),
            len(info.aliases),
        )
        for item in (wanted, *wanted.equals):
            item.progress.engine_done(item.how.name)


def _sessions(options: Sequence[ProgressOption]) -> list[ProgressSession]:
    """Return a session for each partition; partitions with the same option share one."""
    totals = Counter(map(id, options))
    sessions = {
        key: ProgressSession(option, totals[key])
        for key, option in {id(option): option for option in options}.items()
    }
    return [sessions[id(option)] for option in options]


def _engine_of(wanted: _Wanted) -> Engine:
    engine = (wanted.same_as or wanted).engine
    assert engine is not None
    return replace(engine, names=wanted.names)


def _checked_info(blob: object, lowered: LoweredPartition, *, verify: bool = True) -> EngineInfo:
    """Return the metadata of a builder's result; raise if it is no engine for this partition."""
    if not isinstance(blob, bytes):
        raise BuilderError(f"it returned {type(blob).__name__}, not the bytes of an engine blob")
    info = decode_blob(blob, verify=verify).info
    for what, given, expected in (
        ("inputs", info.inputs, lowered.inputs),
        ("outputs", info.outputs, lowered.outputs),
    ):
        if len(given) != len(expected):
            raise BuilderError(f"its engine has {len(given)} {what}; expected {len(expected)}")
        for index, (have, want) in enumerate(zip(given, expected, strict=True)):
            # A foreign blob may have no dtypes and shapes.
            if have.dtype and (have.dtype, have.shape) != (want.dtype, want.shape):
                raise BuilderError(
                    f"its engine's {what[:-1]} {index} ({have.name}) is {have.dtype} "
                    f"{list(have.shape)}; expected {want.dtype} {list(want.shape)}"
                )
    return info
