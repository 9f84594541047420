"""docs/reference/operators.md, from calls of the operators that are tried (operator_calls.py).

python -m tests.support.operators_page > docs/reference/operators.md

It takes five minutes on one core. A test in CI tries some of the operators.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import Any

import torch
from torch._ops import OpOverload

from tests.support.operator_calls import tried
from trt_et.conversion.decompose import decomposed_operators
from trt_et.conversion.operator import Operator
from trt_et.conversion.stages import OPERATORS, decompositions, own_converter
from trt_et.conversion.trial import convertible_operators
from trt_et.partition.ops_to_preserve import OPS_TO_PRESERVE

HEAD = """# Operators

Which operators of Core ATen, and of those that this package keeps from being decomposed, go into
engines: for TensorRT-RTX 1.6 and Torch-TensorRT 2.14. Some calls of each operator were exported
with static and with dynamic sizes, and tried (`python -m tests.support.operators_page`).

* **yes**: each call goes into an engine, with static and with dynamic sizes
* **static sizes**: each call goes into an engine with static sizes, none with dynamic sizes
* **some calls**: the last column has the reasons of the others
* **no**: no call goes into an engine

Whatever the operator: tensors of float64, sparse tensors, tensors without elements, sizes without
an upper bound, and random numbers stay on the CPU. Complex numbers become
[pairs of real ones](../guides/audio.md#what-becomes-products). Operators of uint8
tensors are [fewer](../guides/vision.md#camera-images-uint8-in-and-out). Operators that are not
listed are decomposed into listed ones by ExecuTorch, compute sizes or gradients, or have no
converter. `partitioner.explain(program)` has the reason for each node of your program.

`cumprod` and `quantile` of float32 are computed in float32, where torch uses float64 on a CPU: the
tests hold products of 70 numbers within 1.3e-6 of eager. Products that leave the range of float32
on their way become 0, infinite or NaN.

| operator | in engines | by | calls that stay on the CPU, and why |
|---|---|---|---|
"""
NO_CONVERTER = "Torch-TensorRT has no converter for it"
NOT_TRIED = "torch or ExecuTorch refuse the call"
FIXED = "dynamic sizes: `torch.export` fixes them"
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
    return sorted(filter(_is_listed, core | set(OPS_TO_PRESERVE)), key=str)


def _is_listed(operator: OpOverload) -> bool:
    """Leave out gradients, sizes, what has no value, and variants that write to their arguments."""
    name = operator._schema.name.removeprefix("aten::")
    is_other = name.endswith("_backward") or name.startswith(("sym_", "empty"))
    return not (operator._schema.is_mutable or is_other)


def is_random(operator: OpOverload) -> bool:
    attention = operator is torch.ops.aten.scaled_dot_product_attention.default
    return torch.Tag.nondeterministic_seeded in operator.tags and not attention


def route(operator: OpOverload, convertible: frozenset[Any]) -> str:
    """What makes layers of an operator; empty if nothing does."""
    if is_random(operator):
        return ""
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
    texts = (" ".join(str(f.__doc__).split("\n\n")[0].split()) for f in functions)
    return [text.removeprefix("Refuse ").rstrip(".") for text in texts]


def rows(every: int = 1) -> Iterator[str]:
    """Yield the rows of all operators, or of each n-th one."""
    convertible = convertible_operators()
    for operator in listed()[::every]:
        name = str(operator).removesuffix(".default")
        by = route(operator, convertible)
        if not by:
            why = RANDOM if is_random(operator) else NO_CONVERTER
            yield f"| `{name}` | no | | All: {why} |"
        else:
            verdict, reasons = judged(operator)
            yield f"| `{name}` | {verdict} | {by} | {'; '.join(reasons)} |"


def judged(operator: OpOverload) -> tuple[str, list[str]]:
    """Say which calls of an operator go into engines, and why the others do not."""
    found = tried(operator)
    reasons = [_short(reason) for reason in found.reasons]
    verdict = "some calls"
    if not found.static:
        verdict, reasons = "no", [NOT_TRIED]
    elif not any(found.static):
        verdict = "no"
    elif all(found.static) and all(found.dynamic):
        verdict = "yes" if found.dynamic else "static sizes"
        reasons += [] if found.dynamic else [FIXED]
    elif all(found.static) and not any(found.dynamic):
        verdict = "static sizes"
    return verdict, list(dict.fromkeys([*reasons, *exceptions(operator)]))


def _short(reason: str) -> str:
    """Leave out which converter gave a reason, which the row tells, and names of symbols."""
    reason = re.sub(r"(its dimension) u\d+", r"\1", reason)
    reason = re.sub("; ExecuTorch has no kernel .*", "", reason)
    text = re.sub(r"Torch-TensorRT's converter of \S+ fails with these arguments: ", "", reason)
    return text.partition("\n")[0].rstrip(".").replace("|", "\\|")


def page() -> str:
    return HEAD + "".join(f"{row}\n" for row in rows())


if __name__ == "__main__":
    sys.stdout.write(page())
