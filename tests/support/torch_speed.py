"""What torch works out again at every decomposition is worked out once, for tests.

``run_decompositions`` walks all registered operators each time, since new ones may have come, and
gives some 900 of them seven kernels each for the time that it takes: most of the time of lowering a
small program. Seen with torch 2.13.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
import torch._export.utils as export_utils
import torch.export.exported_program as exported_program
from torch._subclasses import fake_impls

__all__ = ["collect_operators_once", "prepare_kernels_once"]

Kernels = dict[Any, Callable[..., Any]]

_collect = export_utils._collect_all_valid_cia_ops_for_namespace
_override = exported_program._override_composite_implicit_decomp
_prepared: dict[Any, tuple[Kernels, Kernels, Any]] = {}


@cache
def _collected(name: str, operators: int, modules: int) -> frozenset[Any]:
    return frozenset(_collect(getattr(torch.ops, name)))


def _collect_once(namespace: Any) -> set[Any]:
    # A new operator takes an import, or a new name in its namespace.
    return set(_collected(namespace.name, len(dir(namespace)), len(sys.modules)))


def collect_operators_once() -> None:
    """Patch torch for the rest of the process."""
    export_utils._collect_all_valid_cia_ops_for_namespace = _collect_once


def _kernels(operator: Any) -> tuple[Kernels, Any]:
    """An operator's kernels and its rule for fake tensors while torch decomposes a program."""
    own = dict(operator.py_kernels)
    if operator not in _prepared or _prepared[operator][0] != own:
        # torch makes a rule where there is none, and drops any afterwards.
        existing = fake_impls.op_implementations_dict.pop(operator, None)
        with _override({operator: None}):
            rule = fake_impls.op_implementations_dict[operator]
            _prepared[operator] = own, dict(operator.py_kernels), rule
        if existing is not None:
            fake_impls.op_implementations_dict[operator] = existing
    return _prepared[operator][1:]


@contextmanager
def _override_once(decompositions: Kernels) -> Iterator[None]:
    """What torch's own does, of which only the decompositions may differ from time to time."""
    own = {operator: dict(operator.py_kernels) for operator in decompositions}
    prepared = {operator: _kernels(operator) for operator in decompositions}

    def give(operator: Any, kernels: Kernels) -> None:
        operator.py_kernels.clear()
        operator.py_kernels.update(kernels)
        operator._dispatch_cache.clear()

    for operator, decomposition in decompositions.items():
        kernels, rule = prepared[operator]
        give(operator, kernels)
        operator.py_kernels[torch._C.DispatchKey.CompositeImplicitAutograd] = decomposition
        fake_impls.op_implementations_dict.setdefault(operator, rule)
    try:
        yield
    finally:
        for operator, kernels in own.items():
            give(operator, kernels)
            fake_impls._deregister_op_impl(operator)


def prepare_kernels_once() -> None:
    """Patch torch for the rest of the process."""
    exported_program._override_composite_implicit_decomp = _override_once
