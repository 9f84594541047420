"""Bounds the lengths that ``optimum-executorch`` exports without a bound.

TensorRT needs a largest size of every dynamic dimension. For the task ``fill-mask`` optimum leaves
it to ``torch.export``, which finds none if the model computes positions from the tokens (RoBERTa)
or has rotary ones (ModernBERT).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.utils._sympy.numbers import int_oo
from torch.utils._sympy.value_ranges import ValueRanges

from trt_et.graph.symbolic_shapes import shape_env_of


def bound_lengths(programs: Iterable[ExportedProgram], model: torch.nn.Module) -> None:
    """Bound dynamic sizes by the longest text of a model, if they have no upper bound.

    Args:
        programs: As ``torch.export`` returns them; their ranges are changed.
        model: The model of ``transformers`` that they come from.
    """
    longest = _longest_text(model)
    if longest is None:
        return
    for program in programs:
        for ranges in (program.range_constraints, *_recorded_ranges(program)):
            for symbol, known in ranges.items():
                if known.upper is int_oo:
                    ranges[symbol] = ValueRanges(known.lower, longest)


def _longest_text(model: torch.nn.Module) -> int | None:
    """Return the number of positions; RoBERTa and its like begin after the padding's position."""
    for module in model.modules():
        table = getattr(module, "position_embeddings", None)
        if isinstance(table, torch.nn.Embedding) and table.padding_idx is not None:
            return table.num_embeddings - table.padding_idx - 1
    return getattr(getattr(model, "config", None), "max_position_embeddings", None)


def _recorded_ranges(program: ExportedProgram) -> list[dict[Any, Any]]:
    """Return the ranges of the symbols in the sizes of a program's tensors."""
    sizes = [
        size
        for node in program.graph.nodes
        if isinstance(node.meta.get("val"), torch.Tensor)
        for size in node.meta["val"].shape
        if isinstance(size, torch.SymInt)
    ]
    environments = {id(each): each for each in map(shape_env_of, sizes)}
    return [environment.var_to_range for environment in environments.values()]
