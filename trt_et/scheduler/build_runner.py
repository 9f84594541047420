"""Where engines are built: the interface, and building them here one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Protocol

from trt_et.builders.base import BuildRequest, EngineBuilder
from trt_et.errors import (
    BlobError,
    BuildCrashed,
    BuilderError,
    BuilderUnavailable,
    OptionError,
    PartitionError,
)
from trt_et.graph.symbolic_shapes import UnboundedDimension

__all__ = ["BuildJob", "BuildRunner", "InThisProcess", "explained"]

_OWN_ERRORS: Final = (BuilderError, BlobError, UnboundedDimension)


@dataclass(frozen=True, eq=False)
class BuildJob:
    """One engine that has to be built.

    Attributes:
        builder: What builds it.
        request: What to build.
        describe: Says which partition it is, and its operators.
    """

    builder: EngineBuilder
    request: BuildRequest
    describe: Callable[[], str]

    def failed(self, error: Exception) -> Exception:
        """What to raise (``from error``) where building raised ``error``."""
        return explained(error, self.builder, self.describe())

    def crashed(self, how: str) -> BuildCrashed:
        """What to raise where building ended its process."""
        memory = ", which the kernel sends where memory runs out" if how == "SIGKILL" else ""
        return BuildCrashed(
            f"builder {self.builder.name!r} ended its process ({how}{memory}) on "
            f"{self.describe()}. on_crash='split' finds what it cannot build and delegates the "
            "rest; excluded_ops=[...] takes the names of these operators, and leaves them to the "
            "CPU"
        )


class BuildRunner(Protocol):
    """Where builds run: in this process, in others, on other machines."""

    def run(self, jobs: Iterable[BuildJob]) -> Iterator[tuple[BuildJob, bytes]]:
        """Build every job and yield it with its engine's blob, in any order.

        Partitions are lowered one after the other as jobs are taken, and dropped when their engine
        is yielded, so whoever takes many jobs at once holds them all in memory. What a build raises
        is raised as :meth:`BuildJob.failed` says. When this generator is closed or raises, its
        builds have been stopped.
        """


class InThisProcess:
    """Builds one engine after the other, here."""

    def run(self, jobs: Iterable[BuildJob]) -> Iterator[tuple[BuildJob, bytes]]:
        """See :meth:`BuildRunner.run`."""
        for job in jobs:
            try:
                blob = job.builder.build(job.request)
            except Exception as error:
                # A builder may be anybody's: whatever it raises is reported with the partition.
                raise job.failed(error) from error
            yield job, blob
            del job, blob  # Their memory goes before the next partition is lowered.


def explained(error: Exception, builder: EngineBuilder, description: str) -> Exception:
    """The error that says which partition failed, of what; or ``error`` where it does already."""
    if isinstance(error, BuilderUnavailable | OptionError | PartitionError):
        return error
    said = error if isinstance(error, _OWN_ERRORS) else f"{type(error).__name__}: {error}"
    return PartitionError(f"builder {builder.name!r} failed on {description}: {said}")
