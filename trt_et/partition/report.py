"""The partitions of a program and the operators outside them, as text and tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sized
from dataclasses import dataclass, field, replace
from typing import Final

import torch

from trt_et.inspection.kernels import EngineKernels
from trt_et.inspection.page import Picture, html_page
from trt_et.inspection.tables import Shown, Table, size_text
from trt_et.partition.operator_support import COMPUTES_A_SIZE

_NAMES_IN_A_LINE: Final = 3


@dataclass(frozen=True)
class BoundaryTensor:
    """A tensor that enters or leaves a partition.

    Attributes:
        name: The node that produces it.
        dtype: Such as ``torch.float32``.
        shape: Its largest shape.
        nbytes: Bytes of that shape.
    """

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    nbytes: int


@dataclass(frozen=True)
class Partition:
    """A part of a program that becomes one engine.

    Attributes:
        index: Its number, counted in program order.
        name: ``tensorrt_<index>``; in a branch with its path: ``tensorrt_1_cond_true``.
        operators: Its operators, in program order.
        nodes: The names of its nodes; in a branch with the path: ``cond/true/aten_relu_default``.
        inputs: The tensors that enter it. Weights do not, except in a branch, whose weights are
            arguments.
        outputs: The tensors that leave it.
        constant_bytes: Bytes of its weights.
        subgraph: Its branch or body, such as ``cond/true`` or ``map_impl/body``; empty in the
            program's main graph.
        float32: With the option ``precision``, every operator that keeps float32: the node's name,
            the operator, and the reason.
        modules: Paths of the modules that its operators come from, such as ``model.layers.0.mlp``,
            in program order, if ``torch.export`` recorded them.
    """

    index: int
    name: str
    operators: tuple[str, ...]
    nodes: tuple[str, ...]
    inputs: tuple[BoundaryTensor, ...]
    outputs: tuple[BoundaryTensor, ...]
    constant_bytes: int
    subgraph: str = ""
    modules: tuple[str, ...] = ()
    float32: tuple[tuple[str, str, str], ...] = ()

    def float32_groups(self) -> dict[str, str]:
        """Return the operators of ``float32`` with their numbers, by reason."""
        counts = Counter((reason, operator) for _, operator, reason in self.float32)
        groups: dict[str, str] = {}
        for (reason, operator), count in counts.items():
            named = f"{count} x {operator}" if count > 1 else operator
            groups[reason] = f"{groups[reason]}, {named}" if reason in groups else named
        return groups


@dataclass(frozen=True)
class PartitionReport(Shown):
    """The result of partitioning a program.

    ``print(report)`` prints it in lines; a notebook shows it as tables.

    Attributes:
        partitions: One for each engine.
        not_delegated: For every other operator call: the node's name (in a branch with its path),
            the operator, and the reason.
        sources: The line of the model that made each of these calls, by the node's name, if
            ``torch.export`` recorded it.
        without_kernel: The names of those calls that the stock ExecuTorch runtime has no kernel
            for: it does not load the program.
        picture: The graph of the partitions, for ``to_html``; only ``explain`` draws it.
        kernels: The kernels that a call of each engine launches, by the partition's name. Empty
            until the engines are built; without engines whose kernels are not known
            (``trt_et.inspection.read_kernels``).
        made_by: The maker of the networks, such as ``the ONNX parser of TensorRT-RTX 1.6.1``;
            empty: Torch-TensorRT's converters, or a builder that gives no name.
    """

    partitions: tuple[Partition, ...]
    not_delegated: tuple[tuple[str, str, str], ...]
    sources: Mapping[str, str] = field(default_factory=dict)
    without_kernel: frozenset[str] = frozenset()
    picture: Picture = field(default_factory=Picture, compare=False, repr=False)
    kernels: dict[str, EngineKernels] = field(default_factory=dict, compare=False, repr=False)
    made_by: str = ""

    @property
    def tensors_not_delegated(self) -> tuple[tuple[str, str, str], ...]:
        """Return the calls that are not delegated, except calls that compute sizes."""
        return tuple(entry for entry in self.not_delegated if entry[2] != COMPUTES_A_SIZE)

    def __str__(self) -> str:
        lines = [f"engines: by {self.made_by}"] if self.made_by and self.partitions else []
        for part in self.partitions:
            lines.append(_partition_line(part))
            lines += [f"    float32: {why}: {what}" for why, what in part.float32_groups().items()]
        lines += [f"{name}: {kernels}" for name, kernels in self.kernels.items()]
        return "\n".join([*lines, *self.not_delegated_lines()])

    def not_delegated_lines(self, limit: int | None = None) -> list[str]:
        """Return a line for each call, or one for several calls of one reason.

        The line of the model that made the (first) call follows, indented.

        Args:
            limit: Leave out the lines after this many, and give their number.
        """
        lines = []
        for reason, group in self._by_reason().items():
            names = [name for name, _ in group]
            operators = Counter(operator for _, operator in group)
            source = self.sources.get(names[0])
            if len(names) <= _NAMES_IN_A_LINE:
                lines += [
                    f"not delegated: {name} ({operator}): {reason}" for name, operator in group
                ]
            else:
                counts = ", ".join(f"{count} x {operator}" for operator, count in operators.items())
                lines.append(f"not delegated: {counts}: {reason} ({_shortened(names)})")
            if source:
                lines.append(f"    at {source}")
        if limit is not None and len(lines) > limit:
            rest = len(lines) - limit
            lines = [*lines[:limit], f"... and {rest} more lines; the partitioner's report has all"]
        return lines

    def _by_reason(self) -> dict[str, list[tuple[str, str]]]:
        groups: dict[str, list[tuple[str, str]]] = {}
        for name, operator, reason in self.not_delegated:
            groups.setdefault(reason, []).append((name, operator))
        return groups

    def _groups(self) -> dict[tuple[str, str], list[str]]:
        groups: dict[tuple[str, str], list[str]] = {}
        for name, operator, reason in self.not_delegated:
            groups.setdefault((operator, reason), []).append(name)
        return groups

    def to_html(self, title: str = "partitions") -> str:
        """Return a page with the graph of the partitions, which needs no other file."""
        facts = tuple(self.tables())
        return html_page({title: replace(self.picture, facts=facts)}, title)

    def tables(self) -> Iterator[Table]:
        """Yield tables of the engines, of their calls in float32, and of the rest."""
        heads = ("engine", "operators", "weights", "inputs", "outputs")
        rows = tuple(
            (
                part.name,
                str(len(part.operators)),
                size_text(part.constant_bytes),
                *(
                    f"{len(tensors)} ({size_text(sum(t.nbytes for t in tensors))})"
                    for tensors in (part.inputs, part.outputs)
                ),
            )
            for part in self.partitions
        )
        title = f"Engines, by {self.made_by}" if self.made_by else "Engines"
        yield Table(title, heads, rows, heads[1:])
        if self.kernels:
            rows = tuple((name, str(kernels)) for name, kernels in self.kernels.items())
            yield Table("What a call launches", ("engine", "kernels"), rows)
        wide = tuple(
            (part.name, why, what)
            for part in self.partitions
            for why, what in part.float32_groups().items()
        )
        if wide:
            yield Table("In float32", ("engine", "reason", "operators"), wide)
        rest = tuple(
            (
                *(operator, str(len(names)), reason),
                "\n".join(filter(None, [_shortened(names), self.sources.get(names[0])])),
            )
            for (operator, reason), names in self._groups().items()
        )
        if rest:
            last = "nodes, first source line"
            yield Table("On the CPU", ("operator", "calls", "reason", last), rest, ["calls"])


def _partition_line(part: Partition) -> str:
    entering = sum(tensor.nbytes for tensor in part.inputs)
    leaving = sum(tensor.nbytes for tensor in part.outputs)
    return (
        f"{part.name}: {_count(part.operators, 'operator')}, {part.constant_bytes:,} bytes of "
        f"weights; {_count(part.inputs, 'input')} ({entering:,} bytes), "
        f"{_count(part.outputs, 'output')} ({leaving:,} bytes)"
    )


def _count(things: Sized, noun: str) -> str:
    return f"{len(things)} {noun}{'' if len(things) == 1 else 's'}"


def _shortened(names: list[str]) -> str:
    shown = ", ".join(names[:_NAMES_IN_A_LINE])
    return shown if len(names) <= _NAMES_IN_A_LINE else f"{shown}, ..."
