"""Lets a partition compute in float16 or bfloat16 (the option ``precision``).

Which operators keep float32 is decided in ``partition()`` and marked on its nodes
(``trt_et.precision.plan``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import torch
from torch.fx import Node

from trt_et.engine_program.editable_program import EditableProgram
from trt_et.graph.marks import Mark
from trt_et.precision.casts import insert_casts
from trt_et.precision.rules import is_float32

PRECISION_DTYPES: Final = {"float16": torch.float16, "bfloat16": torch.bfloat16}
"""The values of the option ``precision``."""

FLOAT32: Final = Mark("float32")
"""Of a call that keeps float32: the reason."""


def compute_in(
    program: EditableProgram, precision: str, keeps: Mapping[str, bool], names: Mapping[str, str]
) -> None:
    """Let a partition compute in one of ``PRECISION_DTYPES``; its bindings stay the same.

    Args:
        program: The partition; changed.
        precision: The precision.
        keeps: Whether each call of the Edge program keeps float32.
        names: For the nodes of the partition, their names in the Edge program.

    Raises:
        BuilderError: A constant leaves the range of the precision.
    """
    calls = [n for n in program.graph.nodes if n.op == "call_function" and is_float32(n)]
    made = [node for node in calls if names.get(node.name) not in keeps]
    low: set[Node] = {n for n in calls if n not in made and not keeps[names[n.name]]}
    # What permutes inputs and outputs at the boundary follows the calls around it.
    for node in reversed(made):
        if all(user in low for user in node.users):
            low.add(node)
    for node in made:
        if not low.isdisjoint(node.all_input_nodes):
            low.add(node)
    insert_casts(program, PRECISION_DTYPES[precision], low)
