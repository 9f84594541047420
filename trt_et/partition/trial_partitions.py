"""Takes back preserved operators that no partition takes, by trial.

``ops_to_preserve`` asks for each call alone whether an engine can run it. But an engine reads sizes
off its inputs, so a call of a dynamic size also needs a partition in which some tensor has that
size, and there are partitions only once the program has been lowered. A preserved operator that
stays outside of them cannot run: ExecuTorch has no CPU kernel for it. So for these doubtful
operators:

1. lower the program with the operators preserved, and partition it; nothing is delegated;
2. decompose the operators outside of the partitions, and try again: without them, the partitions
   may be others;
3. stop when all remaining operators are inside.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence

from executorch.exir import EdgeCompileConfig, to_edge_transform_and_lower
from executorch.exir.backend.partitioner import Partitioner, PartitionResult
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.fx import Node

from trt_et.engine_program.edge_to_aten import aten_target
from trt_et.graph.own_symbols import with_own_symbols
from trt_et.graph.subgraphs import nodes_of
from trt_et.partition.ops_to_preserve import must_be_delegated, ops_that_may_lack_a_size

Delegated = Callable[[ExportedProgram], Container[Node]]
"""Returns the nodes of an Edge program's partitions."""


def without_undelegated(
    preserved: Sequence[OpOverload], program: ExportedProgram, delegated: Delegated
) -> list[OpOverload]:
    """Return the preserved operators, except operators that a partition lacks a size for.

    Args:
        preserved: What ``ops_to_preserve`` returns.
        program: The program after the passes; it is not changed.
        delegated: Partitions a trial.
    """
    kept = list(preserved)
    doubtful = ops_that_may_lack_a_size(program) & set(kept)
    while doubtful:
        trial = _Trial(kept, delegated)
        # Whether the program is valid is for the caller's own configuration to decide.
        config = EdgeCompileConfig(_check_ir_validity=False)
        to_edge_transform_and_lower(
            with_own_symbols(program), partitioner=[trial], compile_config=config
        )
        if not doubtful & trial.refused:
            break
        kept = [op for op in kept if op not in trial.refused]
        doubtful -= trial.refused
    return kept


class _Trial(Partitioner):
    """Partitions a program without effect; ``refused`` has the operators that stay outside."""

    def __init__(self, preserved: Sequence[OpOverload], delegated: Delegated) -> None:
        super().__init__()
        self._preserved = list(preserved)
        self._delegated = delegated
        self.refused: set[object] = set()

    def partition(self, exported_program: ExportedProgram) -> PartitionResult:
        inside = self._delegated(exported_program)
        outside = (n for n in nodes_of(exported_program) if n not in inside)
        self.refused = {aten_target(node) for node in outside if must_be_delegated(node)}
        self._preserved = []  # ExecuTorch asks again, and expects to find none in the program.
        return PartitionResult(tagged_exported_program=exported_program, partition_tags={})

    def ops_to_not_decompose(
        self, ep: ExportedProgram
    ) -> tuple[list[OpOverload], Callable[[Node], bool] | None]:
        return list(self._preserved), None
