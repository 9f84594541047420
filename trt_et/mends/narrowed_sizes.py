"""Warns of dynamic sizes whose ranges ExecuTorch's passes narrowed.

``to_edge`` traces programs again, and torch compares sizes to choose a kernel for a convolution.
The comparisons that hold for the example become bounds of the size, with any backend (seen with
ExecuTorch 1.5.1). A program that was lowered before, without the pass
``mends/split_to_slices.py``, may have lost a dynamic size.
"""

from __future__ import annotations

import logging
import math
from typing import Final

from torch.export import ExportedProgram

from trt_et.graph.marks import Mark
from trt_et.graph.symbolic_shapes import dynamic_sizes, shape_env_of

_log = logging.getLogger(__name__)

_MAXIMA: Final = Mark("exported_maxima")


def mark_ranges(program: ExportedProgram) -> None:
    """Mark the inputs of a program with the largest dynamic sizes that it was exported for."""
    for node in program.graph.find_nodes(op="placeholder"):
        ranges = {dim: program.range_constraints.get(s.node.expr) for dim, s in dynamic_sizes(node)}
        maxima = [
            (dim, int(known.upper) if known.upper.is_Integer else math.inf)
            for dim, known in ranges.items()
            if known is not None
        ]
        _MAXIMA.write(node, maxima or None)


def warn_narrowed(program: ExportedProgram) -> None:
    """Warn if a dynamic size has become a number, or less than its exported maximum.

    The program is in the Edge dialect; its exported form was marked.
    """
    lost = sorted({int(size) for size in program.range_constraints if size.is_number})
    if lost:
        _log.warning(
            "torch or ExecuTorch made the number %s of a dynamic size%s, because the model "
            "computes with its value (math.sqrt(x.shape[1]): write x.shape[1] ** 0.5), or an "
            "operator gives a list of tensors or compares sizes of the example; other sizes will "
            "not run. Lower with to_edge_transform_and_lower(..., partitioner="
            "[TensorRTPartitioner()]), on a program that was not lowered before. If it was lowered "
            "so, export with an example of other sizes, such as a batch of 3",
            ", ".join(map(str, lost)),
            _fixed_dimensions(program),
        )
    for node in program.graph.find_nodes(op="placeholder"):
        exported = dict(_MAXIMA.of(node) or ())
        for dim, size in dynamic_sizes(node):
            bounds = shape_env_of(size).var_to_range.get(size.node.expr)
            if dim in exported and bounds is not None and bounds.upper < exported[dim]:
                _log.warning(
                    "ExecuTorch narrowed dimension %d of input %s to at most %s, not %s; larger "
                    "inputs will not run. Export with an example input in which this dimension is "
                    "larger than %s",
                    *(dim, node.name, bounds.upper, exported[dim], bounds.upper),
                )


def _fixed_dimensions(program: ExportedProgram) -> str:
    """Name the dimensions of inputs that were exported as dynamic; empty if there are none."""
    fixed = [
        f"dimension {dim} of input {node.name}"
        for node in program.graph.find_nodes(op="placeholder")
        for dim, _ in _MAXIMA.of(node) or ()
        if isinstance(node.meta["val"].shape[dim], int)
    ]
    return f" ({', '.join(fixed)})" if fixed else ""
