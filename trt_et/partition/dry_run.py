"""Shows the Edge program that a partitioner would get, and delegates nothing."""

from __future__ import annotations

from collections.abc import Callable

from executorch.exir import to_edge_transform_and_lower
from executorch.exir.backend.partitioner import Partitioner, PartitionResult
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.fx import Node


def dry_run(
    program: ExportedProgram, partitioner: Partitioner, choose: Callable[[ExportedProgram], object]
) -> None:
    """Lower a program with a partitioner, but call ``choose`` in place of its ``partition``.

    Args:
        program: As ``torch.export`` returns it; it is not changed.
        partitioner: Changes the program, and chooses the operators that are not decomposed.
        choose: Called with the Edge program.
    """
    to_edge_transform_and_lower(program, partitioner=[_DryRun(partitioner, choose)])


class _DryRun(Partitioner):
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
