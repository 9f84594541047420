"""What a partition's builder needs to know, carried from ``partition()`` to ``preprocess()``.

ExecuTorch hands the very list that the partitioner gave as ``DelegationSpec.compile_specs`` to
``BackendDetails.preprocess``. What goes into the ``.pte`` stays plain compile specs; what only
building needs (a builder object, a device, options) rides on the list itself. There is no global
state, and every partition has a list of its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from executorch.exir.backend.compile_spec_schema import CompileSpec

from trt_et.builders.base import EngineBuilder
from trt_et.cache.engine_cache import EngineCache
from trt_et.lowering.in_place_buffers import StateUpdate
from trt_et.lowering.optimization_profiles import OptimizationProfile
from trt_et.options import BuildOptions
from trt_et.scheduler.build_runner import BuildRunner
from trt_et.scheduler.progress import ProgressOption

__all__ = ["PartitionPlan", "PartitionSpecs"]


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
        updates: The buffers that the engine may write in place.
        progress: Who is told how far it is; see :class:`trt_et.scheduler.progress.ProgressSession`.
    """

    name: str
    builder: EngineBuilder
    device_id: int
    options: BuildOptions
    cache: EngineCache | None = None
    runner: BuildRunner | None = None
    profiles: tuple[OptimizationProfile, ...] = ()
    updates: tuple[StateUpdate, ...] = ()
    progress: ProgressOption = False


class PartitionSpecs(list[CompileSpec]):
    """A partition's compile specs, and its plan."""

    def __init__(self, specs: Iterable[CompileSpec], plan: PartitionPlan) -> None:
        super().__init__(CompileSpec(spec.key, bytes(spec.value)) for spec in specs)
        self.plan = plan

    def __deepcopy__(self, memo: dict[int, Any]) -> list[CompileSpec]:
        # Copies are made after lowering (ETRecord does); a builder need not be copyable.
        return [CompileSpec(spec.key, bytes(spec.value)) for spec in self]

    def __reduce__(self) -> tuple[Any, ...]:
        return (list, (list(self),))
