"""docs/reference/operators.md, from the lists that the support check reads.

python -m tests.support.operators_page > docs/reference/operators.md
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import torch
from torch._ops import OpOverload

from trt_et.conversion.decompose import decomposed_operators
from trt_et.conversion.operator import Operator
from trt_et.conversion.stages import OPERATORS, decompositions, own_converter
from trt_et.conversion.trial import convertible_operators
from trt_et.partition.ops_to_preserve import OPS_TO_PRESERVE

HEAD = """# Operators

Which operators of Core ATen, and of those that this package keeps from being decomposed, go into
engines: for TensorRT-RTX 1.6 and Torch-TensorRT 2.14. Generated from the lists that the support
check reads: `python -m tests.support.operators_page`.

Whatever the operator: tensors of float64 and complex numbers, sparse tensors, tensors without
elements, sizes without an upper bound, and random numbers stay on the CPU. Operators of uint8
tensors are [fewer](../guides/vision.md#camera-images-uint8-in-and-out). Operators that are not
listed are decomposed into listed ones by ExecuTorch, or have no converter.
A call that cannot be converted (for its rank, dtypes or dynamic sizes) stays on the CPU as well.
`partitioner.explain(program)` has the reason for each node of your program.

| operator | in engines | by | calls that stay on the CPU, and why |
|---|---|---|---|
"""
NO_CONVERTER = "Torch-TensorRT has no converter for it"
RANDOM = "an engine would freeze the random numbers"
OWN_DECOMPOSITION = "other operators"
THEIR_DECOMPOSITION = "other operators (Torch-TensorRT's decomposition)"


def listed() -> list[OpOverload]:
    packets = (getattr(torch.ops.aten, name) for name in dir(torch.ops.aten))
    overloads = (
        getattr(packet, name)
        for packet in packets
        if isinstance(packet, torch._ops.OpOverloadPacket)
        for name in packet.overloads()
    )
    core = {operator for operator in overloads if torch.Tag.core in operator.tags}
    return sorted(core | set(OPS_TO_PRESERVE), key=str)


def route(operator: OpOverload, convertible: frozenset[Any]) -> str:
    """What makes layers of an operator; empty if nothing does."""
    if own_converter(operator) is not None:
        return "a converter of this package"
    if operator in decompositions():
        return OWN_DECOMPOSITION
    if operator in convertible:
        return "Torch-TensorRT's converter"
    return THEIR_DECOMPOSITION if operator in decomposed_operators() else ""


def exceptions(operator: OpOverload) -> list[str]:
    """The calls that are refused, in the words of the functions that refuse them."""
    entries = [e for e in OPERATORS if isinstance(e, Operator) and operator in e.targets]
    functions = [entry.unsupported for entry in entries if entry.unsupported]
    return [" ".join(str(f.__doc__).split("\n\n")[0].split()).rstrip(".") for f in functions]


def rows() -> Iterator[str]:
    convertible = convertible_operators()
    for operator in listed():
        name = str(operator).removesuffix(".default")
        by = route(operator, convertible)
        attention = operator is torch.ops.aten.scaled_dot_product_attention.default
        if torch.Tag.nondeterministic_seeded in operator.tags and not attention:
            yield f"| `{name}` | no | | All: {RANDOM} |"
        elif not by:
            yield f"| `{name}` | no | | All: {NO_CONVERTER} |"
        else:
            yield f"| `{name}` | yes | {by} | {'; '.join(exceptions(operator))} |"


def page() -> str:
    return HEAD + "".join(f"{row}\n" for row in rows())


if __name__ == "__main__":
    sys.stdout.write(page())
