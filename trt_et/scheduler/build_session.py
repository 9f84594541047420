"""All engines of an export: each distinct one is built once, or taken from the cache.

A partition is lowered, compared with those before it, looked up, and built, and only then the next
one is lowered; what a builder needed is dropped as soon as its engine is there.
"""

from __future__ import annotations

import contextlib
import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import torch
from torch.export import ExportedProgram

from trt_et.blob.model import EngineInfo
from trt_et.builders.base import BuildRequest
from trt_et.cache.build_lock import BuildLock
from trt_et.cache.engine_cache import EngineCache
from trt_et.conversion.torch_tensorrt_patches import patched_once
from trt_et.errors import BlobError, BuilderError
from trt_et.lowering.edge_to_aten import qualified_name
from trt_et.lowering.lower import lower_partition
from trt_et.scheduler.build_plan import PartitionPlan
from trt_et.scheduler.build_runner import BuildJob, BuildRunner, InThisProcess, explained
from trt_et.scheduler.built_engine import checked_info, fits_this_machine
from trt_et.scheduler.duplicates import DuplicateIndex
from trt_et.scheduler.engine_key import (
    WeightDigests,
    builder_fingerprint,
    engine_key,
    request_digest,
    sample_digest,
)
from trt_et.scheduler.progress import ProgressOption, ProgressSession

__all__ = ["Engine", "build_engines"]

_log = logging.getLogger(__name__)


@dataclass
class Engine:
    """An engine, and the partitions that share it.

    Attributes:
        partition: The first partition that needed it.
        blob: Its blob.
        info: The blob's metadata.
        origin: ``"built"`` or ``"cached"``.
    """

    partition: str
    blob: bytes
    info: EngineInfo
    origin: str


def build_engines(partitions: Sequence[tuple[ExportedProgram, PartitionPlan]]) -> list[Engine]:
    """The engine of every partition, in order; equal partitions share one.

    Args:
        partitions: Edge dialect, with real weights, and how to build them. They are not changed.

    Raises:
        PartitionError: An engine could not be built, or is not one for its partition.
    """
    session = _Session()
    with contextlib.ExitStack() as stack:
        stack.enter_context(patched_once())
        progress = _sessions([plan.progress for _, plan in partitions])
        for listener in dict.fromkeys(progress):
            stack.enter_context(listener)
        stack.callback(session.close)
        wanted = [
            _Wanted(program, plan, listener)
            for (program, plan), listener in zip(partitions, progress, strict=True)
        ]
        for runner, group in _by_runner(wanted):
            session.build(runner, group)
    return [_engine_of(item) for item in wanted]


@dataclass(eq=False)
class _Wanted:
    """A partition whose engine is wanted."""

    program: ExportedProgram
    plan: PartitionPlan
    progress: ProgressSession
    engine: Engine | None = None
    same_as: _Wanted | None = None
    equals: list[_Wanted] = field(default_factory=list)

    def explain(self, error: Exception) -> Exception:
        return explained(error, self.plan.builder, _describe(self.plan, self.program))


@dataclass(eq=False)
class _Pending:
    """An engine that is being built, or that another process is building."""

    wanted: _Wanted
    job: BuildJob
    key: str = ""
    lock: BuildLock | None = None


class _Session:
    """One export's builds: what was seen, what is being built, which locks are held."""

    def __init__(self) -> None:
        self._digests = WeightDigests()
        self._seen: dict[tuple[object, ...], DuplicateIndex[_Wanted]] = {}
        self._pending: dict[BuildJob, _Pending] = {}
        self._elsewhere: list[_Pending] = []

    def build(self, runner: BuildRunner, group: Iterable[_Wanted]) -> None:
        """Build what has to be built of these partitions."""
        self._run(runner, self._jobs(group))
        # Only now, without a lock of our own: two processes that wait for each other's engine
        # while they hold one would wait for ever.
        while self._elsewhere:
            self._run(runner, self._waited_for(self._elsewhere.pop(0)))

    def close(self) -> None:
        """Release all locks."""
        for pending in self._pending.values():
            if pending.lock is not None:
                pending.lock.release()
        self._pending.clear()

    def _run(self, runner: BuildRunner, jobs: Iterator[BuildJob]) -> None:
        with contextlib.ExitStack() as stack:
            results = runner.run(jobs)
            if hasattr(results, "close"):
                stack.callback(results.close)
            for job, blob in results:
                self._finish(self._pending.pop(job), blob)
                del job, blob  # The next partition is lowered with this one's memory given back.
        if self._pending:
            raise BuilderError(
                f"the build runner {type(runner).__name__} ended without an engine for "
                + ", ".join(pending.wanted.plan.name for pending in self._pending.values())
            )

    def _jobs(self, group: Iterable[_Wanted]) -> Iterator[BuildJob]:
        for wanted in group:
            try:
                job = self._job(wanted)
            except Exception as error:
                # Lowering meets whatever users export; it is reported with the partition.
                raise wanted.explain(error) from error
            if job is not None:
                yield job
            del job

    def _job(self, wanted: _Wanted) -> BuildJob | None:
        """What has to be built for a partition; None where its engine is there, or on its way."""
        plan = wanted.plan
        lowered = lower_partition(wanted.program, plan.name, plan.profiles, plan.aliased_outputs)
        timings = plan.cache.timings_folder if plan.cache is not None else None
        monitor = wanted.progress.monitor(plan.name)
        request = BuildRequest(plan.name, lowered, plan.device_id, plan.options, timings, monitor)
        digest = request_digest(request)
        if digest is not None and self._is_known(wanted, digest, lowered.sources):
            return None
        job = BuildJob(plan.builder, request, partial(_describe, plan, wanted.program))
        pending = _Pending(wanted, job)
        identity = (
            builder_fingerprint(plan.builder)
            if plan.cache is not None and digest is not None
            else ""
        )
        if plan.cache is not None and digest is not None and identity:
            weights = self._digests.of(lowered.sources)
            pending.key = engine_key(plan.builder.name, identity, digest, weights)
            if self._load(pending, plan.cache):
                return None
            pending.lock = plan.cache.lock(pending.key, wait=False)
            if pending.lock is None:
                self._elsewhere.append(pending)
                return None
            if self._load(pending, plan.cache):  # Stored since we looked.
                pending.lock.release()
                return None
        self._pending[job] = pending
        return job

    def _waited_for(self, pending: _Pending) -> Iterator[BuildJob]:
        cache = pending.wanted.plan.cache
        assert cache is not None
        _log.info("partition %s: another process builds its engine", pending.wanted.plan.name)
        pending.lock = cache.lock(pending.key, wait=True)
        self._pending[pending.job] = pending
        if self._load(pending, cache):
            del self._pending[pending.job]
            if pending.lock is not None:
                pending.lock.release()
            return
        yield pending.job

    def _is_known(self, wanted: _Wanted, digest: str, weights: Mapping[str, torch.Tensor]) -> bool:
        """Whether an equal partition was seen; weights are read only where all else is equal."""
        kind = (id(wanted.plan.builder), digest, sample_digest(weights))
        alike = self._seen.setdefault(kind, DuplicateIndex(self._digests))
        other = wanted.same_as = alike.find_or_add(wanted, weights)
        if other is None:
            return False
        if other.engine is None:
            other.equals.append(wanted)
        else:
            wanted.progress.engine_done(wanted.plan.name)
        return True

    def _load(self, pending: _Pending, cache: EngineCache) -> bool:
        blob = cache.load(pending.key)
        if blob is None:
            return False
        try:
            # The cache has checked every byte.
            info = checked_info(blob, pending.job.request.lowered, verify=False)
        except (BlobError, BuilderError) as error:
            cache.discard(pending.key, str(error))
            return False
        self._set(pending.wanted, blob, info, "cached")
        return True

    def _finish(self, pending: _Pending, blob: bytes) -> None:
        try:
            info = checked_info(blob, pending.job.request.lowered)
        except Exception as error:
            raise pending.job.failed(error) from error
        else:
            if pending.lock is not None and fits_this_machine(info, pending.job):
                pending.lock.store(blob)
            self._set(pending.wanted, blob, info, "built")
        finally:
            if pending.lock is not None:
                pending.lock.release()

    def _set(self, wanted: _Wanted, blob: bytes, info: EngineInfo, origin: str) -> None:
        name = wanted.plan.name
        wanted.engine = Engine(name, blob, info, origin)
        _log.info(
            "partition %s: %s engine for cuda:%s, %s, %d bytes, %d inputs, %d outputs, %d in place",
            name,
            info.builder or "foreign",
            info.device_id,
            origin,
            len(blob),
            len(info.inputs),
            len(info.outputs),
            len(info.aliases),
        )
        for item in (wanted, *wanted.equals):
            item.progress.engine_done(item.plan.name)


def _sessions(options: Sequence[ProgressOption]) -> list[ProgressSession]:
    """A session for each partition; those with the same option share one."""
    totals = Counter(map(id, options))
    distinct = {id(option): option for option in options}
    sessions = {key: ProgressSession(distinct[key], total) for key, total in totals.items()}
    return [sessions[id(option)] for option in options]


def _by_runner(wanted: list[_Wanted]) -> list[tuple[BuildRunner, list[_Wanted]]]:
    here = InThisProcess()
    groups: dict[int, tuple[BuildRunner, list[_Wanted]]] = {}
    for item in wanted:
        runner = item.plan.runner or here
        groups.setdefault(id(runner), (runner, []))[1].append(item)
    return list(groups.values())


def _engine_of(wanted: _Wanted) -> Engine:
    found = wanted if wanted.same_as is None else wanted.same_as
    assert found.engine is not None
    return found.engine


def _describe(plan: PartitionPlan, program: ExportedProgram) -> str:
    names = [qualified_name(n) for n in program.graph.nodes if n.op == "call_function"]
    counted = Counter(names)  # In order of appearance.
    shown = [name if n == 1 else f"{name} x{n}" for name, n in list(counted.items())[:12]]
    more = f" and {len(counted) - 12} more" if len(counted) > 12 else ""
    return f"partition {plan.name} ({len(names)} nodes: {', '.join(shown)}{more})"
