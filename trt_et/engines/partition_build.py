"""How to build a partition's engine, carried from ``partition()`` to ``preprocess()``.

ExecuTorch hands the very list that the partitioner gave as ``DelegationSpec.compile_specs`` to
``BackendDetails.preprocess``. Compile specs end up in the ``.pte``; what only the build needs (a
builder object, a device, options) is an attribute of the list, and of each copy of it.

``list(specs)`` loses that attribute. The partition's nodes still have the partitioner's tag, so
``build_of`` can raise an error instead of building an engine with other options.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, MutableMapping
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any, Final

from executorch.exir.backend.compile_spec_schema import CompileSpec
from torch.export import ExportedProgram

from trt_et.engine_program.in_place_buffers import InPlaceBuffer
from trt_et.engine_program.optimization_profiles import OptimizationProfile
from trt_et.engines.base import EngineBuilder
from trt_et.engines.cache import EngineCache
from trt_et.engines.progress import ProgressOption
from trt_et.errors import OptionError, PartitionError
from trt_et.inspection import EngineKernels
from trt_et.options import BuildOptions


@dataclass(frozen=True)
class PartitionBuild:
    """How to build the engine of one partition.

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
            builds of one partitioner share this object.
        kernels: Where to note what a call of the engine launches, if it is known, by ``name``.
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


# The partitioner's names of partitions, see trt_et.partition.report.
_TAG: Final = re.compile(r"tensorrt_\d+(_\w+)?")


class PartitionSpecs(list[CompileSpec]):
    """A partition's compile specs, with its ``PartitionBuild``."""

    def __init__(self, specs: Iterable[CompileSpec], build: PartitionBuild) -> None:
        super().__init__(CompileSpec(spec.key, bytes(spec.value)) for spec in specs)
        self.build = build

    def copy(self) -> PartitionSpecs:
        """Return a copy with the same build."""
        return PartitionSpecs(self, self.build)

    __copy__ = copy

    def __deepcopy__(self, memo: dict[int, Any]) -> PartitionSpecs:
        # The build is shared: a builder need not be copyable.
        return self.copy()

    def __reduce__(self) -> tuple[Any, ...]:
        # A pickled program needs only its specs.
        return (list, (list(self),))


def check_names(builds: Iterable[PartitionBuild]) -> None:
    """Check that each name in a partitioner's options matches something in one of its programs.

    Raises:
        OptionError: A name matches nothing.
    """
    of_partitioners: dict[int, list[PartitionBuild]] = {}
    for build in builds:
        of_partitioners.setdefault(id(build.matched_elsewhere), []).append(build)
    for first, *others in of_partitioners.values():
        for name, message in first.unmatched.items():
            if name not in first.matched_elsewhere and all(name in o.unmatched for o in others):
                raise OptionError(message)


def build_of(program: ExportedProgram, specs: list[CompileSpec]) -> PartitionBuild | None:
    """Return how to build a partition; None if no ``TensorRTPartitioner`` made it.

    Args:
        program: The partition, as ``preprocess`` gets it.
        specs: Its compile specs.

    Raises:
        PartitionError: The partitioner made it, but ``specs`` lost the build.
    """
    if isinstance(specs, PartitionSpecs):
        return specs.build
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
