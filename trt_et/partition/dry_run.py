"""Finds the partitions of a program by lowering it without delegating."""

from __future__ import annotations

from collections.abc import Callable

from executorch.exir import to_edge_transform_and_lower
from executorch.exir.backend.partitioner import Partitioner, PartitionResult
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.fx import Node

__all__ = ["dry_run"]


def dry_run(
    program: ExportedProgram, partitioner: Partitioner, choose: Callable[[ExportedProgram], object]
) -> None:
    """Lower a program with a partitioner's settings, and delegate nothing.

    Args:
        program: As ``torch.export`` returns it; it is not changed.
        partitioner: The partitioner.
        choose: Called with the Edge program in place of ``partitioner.partition``.
    """
    to_edge_transform_and_lower(program, partitioner=[_Chooser(partitioner, choose)])


class _Chooser(Partitioner):
    def __init__(
        self, partitioner: Partitioner, choose: Callable[[ExportedProgram], object]
    ) -> None:
        super().__init__()
        self._partitioner = partitioner
        self._choose = choose

    def partition(self, exported_program: ExportedProgram) -> PartitionResult:
        self._choose(exported_program)
        return PartitionResult(tagged_exported_program=exported_program, partition_tags={})

    def ops_to_not_decompose(
        self, ep: ExportedProgram
    ) -> tuple[list[OpOverload], Callable[[Node], bool] | None]:
        kept: tuple[list[OpOverload], Callable[[Node], bool] | None]
        kept = self._partitioner.ops_to_not_decompose(ep)
        return kept

    def transform_for_pre_decomposition(self, exported_program: ExportedProgram) -> ExportedProgram:
        changed: ExportedProgram = self._partitioner.transform_for_pre_decomposition(
            exported_program
        )
        return changed
