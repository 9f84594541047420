"""Lets a partition compute in float16 or bfloat16 (the option ``precision``).

Which operators keep float32: ``trt_et.precision.rules``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import torch

from trt_et.blob.model import Binding
from trt_et.engine_program.batch_norms import fold_batch_norms
from trt_et.engine_program.editable_program import EditableProgram
from trt_et.graph.marks import Mark
from trt_et.precision.casts import insert_casts
from trt_et.precision.rules import float32_reasons, is_float32

PRECISION_DTYPES: Final = {"float16": torch.float16, "bfloat16": torch.bfloat16}
"""The values of the option ``precision``."""

FLOAT32: Final = Mark("float32")
"""Of a call in a partition that keeps float32 by the caller's choice: the reason."""


def compute_in(
    program: EditableProgram, precision: str, given: Mapping[str, str], outputs: Sequence[Binding]
) -> None:
    """Let a partition compute in one of ``PRECISION_DTYPES``; its bindings stay the same.

    Args:
        program: The partition; changed.
        precision: The precision.
        given: The names of the calls that keep float32 by the caller's choice, and why.
        outputs: The bindings of its outputs.
    """
    dtype = PRECISION_DTYPES[precision]
    fold_batch_norms(program, given, write_out=True)
    calls = [node for node in program.graph.nodes if node.op == "call_function"]
    # To look at a value must not change its precision.
    results: Any = program.graph.output_node().args[0]
    returned = [node for node, b in zip(results, outputs, strict=True) if not b.value_of]
    reasons = float32_reasons(
        calls,
        returned,
        program.values,
        dtype,
        {node: given[node.name] for node in calls if node.name in given},
    )
    insert_casts(program, dtype, {n for n in calls if is_float32(n) and n not in reasons})
