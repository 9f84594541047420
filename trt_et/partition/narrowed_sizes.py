"""Warns of dynamic sizes whose ranges ExecuTorch's passes narrowed."""

from __future__ import annotations

import logging
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch.export import ExportedProgram

_log = logging.getLogger(__name__)


class ExportedRanges:
    """The ranges of dynamic sizes, as the programs were exported.

    ``to_edge`` traces programs again, and torch compares sizes to choose a kernel for a
    convolution. The comparisons that hold for the example become bounds of the size, with any
    backend (seen with ExecuTorch 1.5.1).
    """

    def __init__(self) -> None:
        self._known: WeakKeyDictionary[Any, dict[Any, Any]] = WeakKeyDictionary()

    def remember(self, program: ExportedProgram) -> None:
        """Remember the ranges of a program as it was exported."""
        for _, _, size in _sizes(program):
            self._known.setdefault(size.node.shape_env, dict(program.range_constraints))

    def warn_narrowed(self, program: ExportedProgram) -> None:
        """Warn if memory is going to be planned for less than a size's exported maximum.

        The program is in the Edge dialect, of an exported program that was remembered.
        """
        for name, dim, size in _sizes(program):
            environment, symbol = size.node.shape_env, size.node.expr
            exported = self._known.get(environment, {}).get(symbol)
            bounds = environment.var_to_range.get(symbol)
            if exported is not None and bounds is not None and bounds.upper < exported.upper:
                _log.warning(
                    "ExecuTorch narrowed dimension %d of input %s to at most %s, not %s; larger "
                    "inputs will not run. Export with an example input in which this dimension is "
                    "larger than %s",
                    *(dim, name, bounds.upper, exported.upper, bounds.upper),
                )


def _sizes(program: ExportedProgram) -> list[tuple[str, int, Any]]:
    """Return the dynamic sizes of inputs, with the input's name and the dimension."""
    return [
        (node.name, dim, size)
        for node in program.graph.find_nodes(op="placeholder")
        if isinstance(value := node.meta.get("val"), torch.Tensor)
        for dim, size in enumerate(value.shape)
        if isinstance(size, torch.SymInt)
    ]
