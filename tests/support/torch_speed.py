"""What torch works out again at every decomposition is worked out once, for tests.

``run_decompositions`` walks all registered operators each time, since new ones may have come: a
third of the time of lowering a small program.
"""

from __future__ import annotations

import sys
from functools import cache
from typing import Any

import torch
import torch._export.utils as export_utils

__all__ = ["collect_operators_once"]

_collect = export_utils._collect_all_valid_cia_ops_for_namespace


@cache
def _collected(name: str, operators: int, modules: int) -> frozenset[Any]:
    return frozenset(_collect(getattr(torch.ops, name)))


def _collect_once(namespace: Any) -> set[Any]:
    # A new operator takes an import, or a new name in its namespace.
    return set(_collected(namespace.name, len(dir(namespace)), len(sys.modules)))


def collect_operators_once() -> None:
    """Patch torch for the rest of the process."""
    export_utils._collect_all_valid_cia_ops_for_namespace = _collect_once
