"""Draws a program's methods: inputs, calls, outputs, and the tensors between them."""

from __future__ import annotations

from collections import Counter
from typing import Final

from trt_et.inspection.kernels import KERNEL_BYTES, Kernel
from trt_et.inspection.model import BINDING, DELEGATE, MethodInfo, ProgramInfo, TensorValue
from trt_et.inspection.page import CPU, ENDS, Bar, Box, Picture, box_lines
from trt_et.inspection.tables import Table
from trt_et.inspection.texts import engine_text

# In a method with more calls, operators on the CPU that follow each other become one box.
_MOST_BOXES: Final = 400
_COPIES: Final = {"h2d": "copy to the GPU", "d2h": "copy to the host"}


def pictures_of(program: ProgramInfo) -> dict[str, Picture]:
    """Draw each method, by its name."""
    return {method.name: picture_of(method) for method in program.methods}


def picture_of(method: MethodInfo) -> Picture:
    """Draw a method."""
    picture = Picture(tuple(method.tables()))
    names = method.value_names
    producers: dict[int, int] = {}
    for index, value in enumerate(method.input_values):
        producers[value] = len(picture.boxes)
        picture.boxes.append(_end(method, "input", index, value))
    merge = len(method.calls) > _MOST_BOXES
    run: list[str] = []  # Operators of the last box, if they may be merged.
    for call in method.calls:
        if call.kind == "delegate":
            run = []
            picture.boxes.append(_delegate_box(method, call.index))
        elif direction := method.copy_direction(call):
            run = []
            picture.boxes.append(Box("copy between host and GPU", _COPIES[direction]))
        else:
            if merge and run:
                picture.boxes.pop()
            else:
                run = []
            run.append(method.cpu_operators[call.index])
            picture.boxes.append(_operators_box(run))
        at = len(picture.boxes) - 1
        for value in dict.fromkeys(call.args):
            tensor = method.values[value]
            if tensor is None or tensor.is_constant:
                continue
            # In a method each tensor is written once, before it is read.
            source = producers.setdefault(value, at)
            if source != at:
                picture.add_arrow(source, at, _text(tensor, names.get(value, "")), tensor.nbytes)
    for index, value in enumerate(method.output_values):
        tensor = method.values[value]
        if value in producers and tensor is not None:
            end = len(picture.boxes)
            picture.add_arrow(producers[value], end, _text(tensor), tensor.nbytes)
        picture.boxes.append(_end(method, "output", index, value))
    return picture


def _delegate_box(method: MethodInfo, index: int) -> Box:
    delegate = method.delegates[index]
    info, counts = delegate.engine, delegate.operator_counts
    device = f"cuda:{info.device_id or 0}" if info else "the CPU"
    group = f"{delegate.backend_id} on {device}"
    about = [pair for pair in zip(DELEGATE, delegate.row(index), strict=True) if all(pair)]
    facts = [Table("Delegate", ("", ""), tuple(about))]
    if rows := [row[1:] for row in delegate.binding_rows(index)]:
        facts.append(Table("Inputs and outputs", BINDING, tuple(rows)).without_empty_columns())
    if counts:
        facts.append(_operators_table(counts))
    lines = [engine_text(info) if info else "", *box_lines(counts)]
    kernels = delegate.kernels
    if kernels:
        lines.append(kernels.count_text)
    return Box(
        group,
        f"{delegate.title} {'' if delegate.partition.name else index}".strip(),
        tuple(filter(None, lines)),
        tuple(facts),
        tuple(map(_bar, kernels.kernels)) if kernels else (),
        KERNEL_BYTES,
        str(kernels or ""),
    )


def _bar(kernel: Kernel) -> Bar:
    parts = (kernel.bytes_read, kernel.bytes_written, kernel.constant_bytes)
    tip = f"{kernel.kind} {kernel.name}"
    return Bar(", ".join(kernel.operators), ", ".join(kernel.nodes), tip, parts)


def _operators_box(names: list[str]) -> Box:
    counts = Counter(names)
    lines, facts = box_lines(counts), (_operators_table(counts),)
    if len(names) == 1:
        return Box(CPU, lines[0], facts=facts)
    return Box(CPU, f"{len(names)} operators", lines, facts)


def _operators_table(counts: Counter[str] | dict[str, int]) -> Table:
    rows = tuple((name, str(count)) for name, count in counts.items())
    return Table("Operators", ("operator", "calls"), rows, ["calls"])


def _end(method: MethodInfo, kind: str, index: int, value: int) -> Box:
    tensor, name = method.values[value], method.value_names.get(value, "")
    line = str(tensor) if tensor else "no tensor"
    about = [("name", name), ("tensor", line), ("device", tensor.device if tensor else "")]
    facts = Table(f"{kind.capitalize()} {index}", ("", ""), tuple(row for row in about if row[1]))
    return Box(ENDS, name if name and kind == "input" else f"{kind} {index}", (line,), (facts,))


def _text(tensor: TensorValue, name: str = "") -> str:
    return f"{name + ': ' if name else ''}{tensor}"
