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

import torch
from torch.export import ExportedProgram

from trt_et.blob.codec import decode_blob
from trt_et.blob.model import EngineInfo
from trt_et.engine_program.program import EngineProgram
from trt_et.engines.cache import EngineCache
from trt_et.engines.job import Engine, Job
from trt_et.engines.key import (
    WeightDigests,
    builder_fingerprint,
    engine_key,
    request_digest,
    sample_digest,
)
from trt_et.engines.libraries import warn_once
from trt_et.engines.make_request import make_request
from trt_et.engines.progress import ProgressOption, ProgressSession
from trt_et.engines.workers import build_all
from trt_et.errors import BlobError, BuilderError
from trt_et.graph.tracing import unchanged_by_tracing
from trt_et.inspection import read_kernels

_log = logging.getLogger(__name__)


def build_engines(partitions: Sequence[tuple[ExportedProgram, Job]]) -> list[Engine]:
    """Return the engine of every partition, in order; equal partitions share one.

    Args:
        partitions: Edge dialect, with real weights, and their jobs. They are not changed.

    Raises:
        PartitionError: An engine could not be built, or is not one for its partition.
    """
    listeners = _sessions([job.progress for _, job in partitions])
    jobs = [
        job.started(program, listener)
        for (program, job), listener in zip(partitions, listeners, strict=True)
    ]
    groups: dict[int, list[Job]] = {}
    for job in jobs:
        groups.setdefault(id(job.executor), []).append(job)
    session = _Session()
    with contextlib.ExitStack() as stack:
        for listener in dict.fromkeys(listeners):
            stack.enter_context(listener)
        for job in jobs:
            stack.callback(job.release)
        for group in groups.values():
            session.build(group[0].executor, group)
    for job in jobs:
        warn_once(job.builder.name)
    return [job.engine for job in jobs if job.engine is not None]


class _Session:
    """One export's builds."""

    def __init__(self) -> None:
        self._digests = WeightDigests()
        self._seen: dict[object, list[tuple[Job, Mapping[str, torch.Tensor]]]] = {}
        self._elsewhere: list[Job] = []

    def build(self, executor: Executor | None, group: Iterable[Job]) -> None:
        """Build the engines of these jobs that are not there yet."""
        self._run(executor, filter(self._is_new, group))
        # Wait only now that this process holds no lock: two processes that wait for each other's
        # engine while each holds a lock would wait for ever.
        while self._elsewhere:
            job = self._elsewhere.pop(0)
            _log.info("partition %s: another process builds its engine", job.name)
            self._run(executor, self._after_waiting(job))

    def _run(self, executor: Executor | None, jobs: Iterator[Job]) -> None:
        with contextlib.closing(build_all(executor, jobs)) as results:
            for job, blob in results:
                _keep(job, blob)
                del blob  # Free its memory before the next partition is lowered.

    def _is_new(self, job: Job) -> bool:
        """Check that a job's engine is neither there nor on its way."""
        try:
            request = job.request = make_request(job)
            job.names = request.program.names
            digest = request_digest(request)
            if digest is None:
                return True
            if self._is_known(job, digest):
                return False
            fingerprint = builder_fingerprint(job.builder) if job.cache is not None else ""
            if job.cache is None or not fingerprint:
                return True
            weights = self._digests.of(request.program.sources)
            job.key = engine_key(job.builder.name, fingerprint, digest, weights)
            return not self._load(job, job.cache) and self._is_missing(job, job.cache, wait=False)
        except Exception as error:
            # Users' programs can fail in any way; the report names the partition.
            raise job.failed(error) from error

    def _is_missing(self, job: Job, cache: EngineCache, *, wait: bool) -> bool:
        """Lock a job's key, and look into the cache again; another process may have built it."""
        job.lock = cache.lock(job.key, wait=wait)
        if job.lock is None:
            self._elsewhere.append(job)
        return job.lock is not None and not self._load(job, cache)

    def _after_waiting(self, job: Job) -> Iterator[Job]:
        if job.cache is not None and self._is_missing(job, job.cache, wait=True):
            yield job

    def _is_known(self, job: Job, digest: str) -> bool:
        """Check whether an earlier partition is equal; read weights only if all else is equal."""
        weights = job.request.program.sources
        kind = (id(job.builder), digest, sample_digest(weights))
        alike = self._seen.setdefault(kind, [])
        for other, its_weights in alike:
            if self._digests.are_equal(its_weights, weights):
                other.share_with(job)
                return True
        alike.append((job, weights))  # Kept, or their memory could become another's.
        return False

    def _load(self, job: Job, cache: EngineCache) -> bool:
        blob = cache.load(job.key)
        if blob is None:
            return False
        try:
            # The cache has checked every byte.
            info = _checked_info(blob, job.request.program, verify=False)
        except (BlobError, BuilderError) as error:
            cache.discard(job.key, str(error))
            return False
        _finish(job, blob, info, "cached")
        return True


def _keep(job: Job, blob: bytes) -> None:
    """Check an engine that was built, store it in the cache, and finish its job."""
    try:
        verify = job.executor is not None or not job.builder.verified
        info = _checked_info(blob, job.request.program, verify=verify)
        # A worker on another machine may have another GPU than the one in the key.
        fits = not info.gpu_name or info.gpu_name in builder_fingerprint(job.builder)
        if job.lock is not None and job.cache is not None and fits:
            job.cache.store(job.key, blob)
        _finish(job, blob, info, "built")
    except (BlobError, BuilderError) as error:
        raise job.failed(error) from error


def _finish(job: Job, blob: bytes, info: EngineInfo, origin: str) -> None:
    program = job.request.program
    with unchanged_by_tracing(program.exported.graph.nodes):
        named_data = job.builder.named_data(program, blob)
    kernels = read_kernels(decode_blob(blob, verify=False).engine)
    _log.info(
        "partition %s: %s engine for cuda:%s, %s, %d bytes, %d inputs, %d outputs, %d in place",
        job.name,
        info.builder or "foreign",
        info.device_id,
        origin,
        len(blob),
        len(info.inputs),
        len(info.outputs),
        len(info.aliases),
    )
    job.finish(Engine(job.name, blob, info, origin, named_data, kernels))


def _sessions(options: Sequence[ProgressOption]) -> list[ProgressSession]:
    """Return a session for each partition; partitions with the same option share one."""
    totals = Counter(map(id, options))
    sessions = {
        key: ProgressSession(option, totals[key])
        for key, option in {id(option): option for option in options}.items()
    }
    return [sessions[id(option)] for option in options]


def _checked_info(blob: object, program: EngineProgram, *, verify: bool = True) -> EngineInfo:
    """Return the metadata of a builder's result; raise if it is no engine for this partition."""
    if not isinstance(blob, bytes):
        raise BuilderError(f"it returned {type(blob).__name__}, not the bytes of an engine blob")
    info = decode_blob(blob, verify=verify).info
    for what, given, expected in (
        ("inputs", info.inputs, program.inputs),
        ("outputs", info.outputs, program.outputs),
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
