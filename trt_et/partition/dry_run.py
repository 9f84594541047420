"""Finds the partitions of a program by lowering it without delegating."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from executorch.exir import EdgeCompileConfig, to_edge_transform_and_lower
from executorch.exir.backend.partitioner import Partitioner, PartitionResult
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.fx import Node


def dry_run(
    program: ExportedProgram,
    partitioner: Partitioner,
    choose: Callable[[ExportedProgram], object],
    preserved: Sequence[OpOverload] | None = None,
) -> None:
    """Lower a program with a partitioner's settings, and delegate nothing.

    Args:
        program: As ``torch.export`` returns it; it is not changed.
        partitioner: The partitioner.
        choose: Called with the Edge program in place of ``partitioner.partition``.
        preserved: The operators that are not decomposed, of a program that the partitioner's
            passes have changed already. None: the partitioner changes it, and chooses them.
    """
    chooser = _Chooser(partitioner, choose, preserved)
    # Within a lowering, the caller's configuration decides whether the program is valid.
    config = EdgeCompileConfig(_check_ir_validity=preserved is None)
    to_edge_transform_and_lower(program, partitioner=[chooser], compile_config=config)


class _Chooser(Partitioner):
    def __init__(
        self,
        partitioner: Partitioner,
        choose: Callable[[ExportedProgram], object],
        preserved: Sequence[OpOverload] | None,
    ) -> None:
        super().__init__()
        self._partitioner = partitioner
        self._choose = choose
        self._preserved = preserved

    def partition(self, exported_program: ExportedProgram) -> PartitionResult:
        self._choose(exported_program)
        if self._preserved is not None:
            self._preserved = ()  # ExecuTorch asks again, and expects to find none in the program.
        return PartitionResult(tagged_exported_program=exported_program, partition_tags={})

    def ops_to_not_decompose(
        self, ep: ExportedProgram
    ) -> tuple[list[OpOverload], Callable[[Node], bool] | None]:
        if self._preserved is not None:
            return list(self._preserved), None
        kept: tuple[list[OpOverload], Callable[[Node], bool] | None]
        kept = self._partitioner.ops_to_not_decompose(ep)
        return kept

    def transform_for_pre_decomposition(self, exported_program: ExportedProgram) -> ExportedProgram:
        if self._preserved is not None:
            return exported_program
        changed: ExportedProgram = self._partitioner.transform_for_pre_decomposition(
            exported_program
        )
        return changed
