"""The option ``on_crash``: plans partitions around what ends the process of a builder.

Engines are built when all partitions are fixed (``preprocess``). So each partition is built once
before, as ExecuTorch would have it built, and one that crashes is cut in two: the longest part from
its beginning that builds, and the rest. Both stay on the GPU; most crashes come from operators that
are fused with each other. What crashes although it cannot be cut stays on the CPU.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal
from weakref import WeakValueDictionary

import torch
from executorch.exir.backend.backend_api import MethodProgramsPartitionerSpec, to_backend
from executorch.exir.backend.partitioner import DelegationSpec, Partitioner, PartitionResult
from torch.export import ExportedProgram
from torch.fx import Node

from trt_et.errors import BuildCrashed, OptionError
from trt_et.graph.subgraphs import subgraphs
from trt_et.partition.excluded_ops import exported_name
from trt_et.partition.grouping import cut_points, is_worth_an_engine
from trt_et.partition.operator_support import OperatorSupport
from trt_et.partition.ops_to_preserve import must_be_delegated
from trt_et.partition.report import Partition, describe_partition
from trt_et.partition.tags import tag_constants

__all__ = ["CrashSearch", "OnCrash", "checked_on_crash"]

OnCrash = Literal["error", "split"]

_REFUSED: Final = "its build ends the process of the builder"
_log = logging.getLogger(__name__)

Specs = Callable[[ExportedProgram, Partition, list[Node]], DelegationSpec]
"""How one partition of a program, with these nodes, is to be built."""


def checked_on_crash(value: OnCrash | None) -> OnCrash | None:
    """The option's value.

    Raises:
        OptionError: It has none of its values.
    """
    if value in (None, "error", "split"):
        return value
    raise OptionError(f"on_crash is {value!r}; expected None, 'error' or 'split'")


class CrashSearch:
    """Builds partitions on trial.

    Args:
        min_block_size: Smallest number of operators worth an engine.
        specs: How partitions are built.
    """

    def __init__(self, min_block_size: int, specs: Specs) -> None:
        self._min_block_size = min_block_size
        self._specs = specs
        self._weights: WeakValueDictionary[str, torch.Tensor] = WeakValueDictionary()

    def add_weights(self, program: ExportedProgram) -> None:
        """Remember a program's weights: ``partition()`` gets it without them."""
        self._weights.update(program.state_dict)

    def parts(
        self, program: ExportedProgram, support: OperatorSupport, nodes: list[Node]
    ) -> list[list[Node]]:
        """The parts of a group that can be built, each on its own; what is left out is refused.

        Args:
            program: Edge dialect; not changed.
            support: What an engine can hold of one of its graphs.
            nodes: A group of its nodes, in program order.

        Raises:
            BuildCrashed: What crashes has no CPU kernel.
        """
        parts: list[list[Node]] = []
        rest = nodes
        while rest and (crash := self._crash(program, support, rest)) is not None:
            points = [*cut_points(program, support, rest), len(rest)]
            built, crashed = -1, len(points) - 1
            while crashed - built > 1:
                middle = (built + crashed) // 2
                if self._crash(program, support, rest[: points[middle]]) is None:
                    built = middle
                else:
                    crashed = middle
            at = points[max(built, 0)]
            if built < 0:
                self._leave_out(support, rest[:at], crash)
            else:
                parts.append(rest[:at])
            rest = rest[at:]
        if not parts and len(rest) == len(nodes):
            return [nodes]
        parts += [rest] if rest else []
        _log.warning(
            "the builder ends its process on a partition of %d nodes, from %s to %s; it is %s",
            len(nodes),
            support.subgraph.name_of(nodes[0]),
            support.subgraph.name_of(nodes[-1]),
            f"delegated in {len(parts)} smaller partitions" if parts else "left to the CPU",
        )
        return [p for p in parts if is_worth_an_engine(p, support, self._min_block_size)]

    def _leave_out(self, support: OperatorSupport, nodes: list[Node], crash: BuildCrashed) -> None:
        names = list(dict.fromkeys(map(exported_name, nodes)))
        if any(must_be_delegated(node) for node in nodes):
            raise BuildCrashed(
                f"{crash}. No smaller part of it can be delegated, and it has no CPU kernel unless "
                f"ExecuTorch decomposes it: export again with excluded_ops={names}"
            ) from crash
        support.refuse(nodes, _REFUSED)
        _log.warning(
            "left to the CPU, because the builder ends its process on them: %s. "
            "excluded_ops=%s does so without a search",
            ", ".join(support.subgraph.name_of(node) for node in nodes),
            names,
        )

    def _crash(
        self, program: ExportedProgram, support: OperatorSupport, nodes: list[Node]
    ) -> BuildCrashed | None:
        """What became of a build on trial; None where it is fine."""
        partition = describe_partition(program, support.subgraph, 0, nodes)
        spec = self._specs(program, partition, nodes)
        trial = copy.copy(program)
        trial._state_dict = _with_values(program.state_dict, self._weights)
        trial._constants = dict(program.constants)
        try:
            tagger = _Tagger(program, partition.name, nodes, spec)
            to_backend(MethodProgramsPartitionerSpec({"forward": trial}, {"forward": tagger}))
        except BuildCrashed as crash:
            _log.info("a trial build of %d nodes ended its process", len(nodes))
            return crash
        return None


class _Tagger(Partitioner):
    """Makes one partition, of the copies of nodes that another copy of the program has."""

    def __init__(
        self, program: ExportedProgram, name: str, nodes: Sequence[Node], spec: DelegationSpec
    ) -> None:
        super().__init__()
        wanted = set(nodes)
        self._wanted = [node in wanted for node in _nodes_of(program)]
        self._name = name
        self._spec = spec

    def partition(self, exported_program: ExportedProgram) -> PartitionResult:
        for node, is_wanted in zip(_nodes_of(exported_program), self._wanted, strict=True):
            if is_wanted:
                node.meta["delegation_tag"] = self._name
        tag_constants(exported_program)
        return PartitionResult(exported_program, {self._name: self._spec})


def _nodes_of(program: ExportedProgram) -> list[Node]:
    return [node for graph in subgraphs(program.graph_module) for node in graph.graph.nodes]


def _with_values(
    fakes: Mapping[str, torch.Tensor], values: Mapping[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """The weights of those names; zeros where they are not known (after ``to_edge``, say)."""
    found = {}
    for name, fake in fakes.items():
        value = values.get(name)
        if value is None or (value.dtype, value.shape) != (fake.dtype, fake.shape):
            value = torch.zeros(fake.shape, dtype=fake.dtype)
        found[name] = value
    return found
