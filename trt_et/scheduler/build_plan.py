"""What a partition's builder needs to know, carried from ``partition()`` to ``preprocess()``.

ExecuTorch hands the very list that the partitioner gave as ``DelegationSpec.compile_specs`` to
``BackendDetails.preprocess``. What goes into the ``.pte`` stays plain compile specs; what only
building needs (a builder object, a device, options) is an attribute of the list, also of a copy of
it. There is no global state, and every partition has a list of its own.

A list built anew (``list(specs)``) has no plan. The partition's nodes still have the partitioner's
tag, so :func:`plan_of` reports that the plan is lost; the engine is never built with other options.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from executorch.exir.backend.compile_spec_schema import CompileSpec
from torch.export import ExportedProgram

from trt_et.builders.base import EngineBuilder
from trt_et.cache.engine_cache import EngineCache
from trt_et.errors import PartitionError
from trt_et.lowering.in_place_buffers import InPlaceBuffer
from trt_et.lowering.optimization_profiles import OptimizationProfile
from trt_et.options import BuildOptions
from trt_et.scheduler.build_runner import BuildRunner
from trt_et.scheduler.progress import ProgressOption

__all__ = ["PartitionPlan", "PartitionSpecs", "plan_of"]


@dataclass(frozen=True)
class PartitionPlan:
    """How to build one partition.

    Attributes:
        name: The partition's name (its delegation tag).
        builder: What builds its engine.
        device_id: The GPU to build for.
        options: What the caller asked of the engine.
        cache: Where engines are kept; None: nowhere.
        runner: Where the engine is built; None: in this process.
        profiles: Ranges of the program's symbols to tune the engine for.
        aliased_outputs: The buffers that the engine may write in place.
        progress: Whether and how progress is reported; see
            :class:`trt_et.scheduler.progress.ProgressSession`.
        check: Called before anything is built; raises where an option does not fit the program.
    """

    name: str
    builder: EngineBuilder
    device_id: int
    options: BuildOptions
    cache: EngineCache | None = None
    runner: BuildRunner | None = None
    profiles: tuple[OptimizationProfile, ...] = ()
    aliased_outputs: tuple[InPlaceBuffer, ...] = ()
    progress: ProgressOption = False
    check: Callable[[], None] | None = None


# The partitioner's names of partitions, see trt_et.partition.report.
_TAG: Final = re.compile(r"tensorrt_\d+(_\w+)?")


class PartitionSpecs(list[CompileSpec]):
    """A partition's compile specs, and its plan."""

    def __init__(self, specs: Iterable[CompileSpec], plan: PartitionPlan) -> None:
        super().__init__(CompileSpec(spec.key, bytes(spec.value)) for spec in specs)
        self.plan = plan

    def copy(self) -> PartitionSpecs:
        """The same specs and the same plan."""
        return PartitionSpecs(self, self.plan)

    __copy__ = copy

    def __deepcopy__(self, memo: dict[int, Any]) -> PartitionSpecs:
        # The plan is shared: a builder need not be copyable.
        return self.copy()

    def __reduce__(self) -> tuple[Any, ...]:
        # A pickled program needs its specs only.
        return (list, (list(self),))


def plan_of(program: ExportedProgram, specs: list[CompileSpec]) -> PartitionPlan | None:
    """The plan of a partition; None where no :class:`TensorRTPartitioner` made it.

    Args:
        program: The partition, as ``preprocess`` gets it.
        specs: Its compile specs.

    Raises:
        PartitionError: The partitioner made it, but ``specs`` no longer has the plan.
    """
    if isinstance(specs, PartitionSpecs):
        return specs.plan
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
