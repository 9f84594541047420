"""Which kernels of two programs differ."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from difflib import SequenceMatcher

from trt_et.inspection.kernels import EngineKernels, Kernel
from trt_et.inspection.model import ProgramInfo


def kernel_differences(first: ProgramInfo, second: ProgramInfo) -> Iterator[str]:
    """Compare the engines' kernels: a line for the totals that differ, and one for each kernel.

    Engines are paired by method and position. A kernel differs in its operators, nodes or bytes.
    Engines whose kernels are not known in either file are passed over.
    """
    others = {method.name: method.delegates for method in second.methods}
    for method in first.methods:
        pairs = zip(method.delegates, others.get(method.name, ()), strict=False)
        for index, (one, other) in enumerate(pairs):
            where = f"methods.{method.name}.delegates[{index}].kernels"
            yield from _differences(one.kernels, other.kernels, where)


def _differences(
    one: EngineKernels | None, other: EngineKernels | None, where: str
) -> Iterator[str]:
    if _totals(one) != _totals(other):
        yield f"{where}: {one or 'not known'} -> {other or 'not known'}"
    if one is None or other is None:
        return
    first, second = ([_compared(kernel) for kernel in each.kernels] for each in (one, other))
    matcher = SequenceMatcher(None, first, second, autojunk=False)
    for kind, start, end, other_start, other_end in matcher.get_opcodes():
        if kind != "equal":
            for index in range(start, end):
                yield f"{where}[{index}]: only in the first: {first[index]}"
            for index in range(other_start, other_end):
                yield f"{where}[{index}]: only in the second: {second[index]}"


def _totals(kernels: EngineKernels | None) -> tuple[int | None, ...] | None:
    if kernels is None:
        return None
    moved = (kernels.traffic, kernels.constant_bytes)
    return (len(kernels.kernels), *moved, kernels.activation_memory)


def _compared(kernel: Kernel) -> Kernel:
    """Leave out names with numbers that depend on the whole engine."""
    return replace(kernel, name="", source="")
