"""Trace a part of a program again: a lock for state of the process, and guards of symbols.

Tracing graphs (fake modes, symbolic shapes), Torch-TensorRT's converter registry, and the answers
that replace a missing GPU (``torch_tensorrt_patches.without_gpu``) are state of the process.
Building an engine, which takes the time, needs none of them and runs outside of the lock.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterable, Iterator
from typing import Any, Final

import sympy
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import Node

from trt_et.graph.insertion import fake_mode_of

TRACING: Final = threading.RLock()
_LOGS: Final = ("torch.fx.experimental.symbolic_shapes", "torch._subclasses.fake_tensor")


@contextlib.contextmanager
def unchanged_by_tracing(nodes: Iterable[Node]) -> Iterator[None]:
    """Trace nodes in the block, and leave their fake mode and its ``ShapeEnv`` as they were.

    Partitions share both with the caller's program. What tracing assumes of a size would hold for
    that program too: ExecuTorch would plan less memory, and refuse larger inputs. Tracing also
    fails if data-dependent sizes of other parts are pending, and it advances the mode's ``epoch``,
    which invalidates the cached results of ``item()``: the next pass over the whole program makes
    new symbols for the same sizes, and the program cannot be decomposed again
    (``PendingUnbackedSymbolNotFound``, seen with torch 2.13).
    """
    mode = fake_mode_of(nodes)
    if mode is None:
        yield
        return
    epoch, environment = mode.epoch, mode.shape_env
    pending = [] if environment is None else environment.pending_fresh_unbacked_symbols
    before = list(pending)
    pending.clear()
    try:
        with contextlib.nullcontext() if environment is None else environment.suppress_guards():
            yield
    finally:
        mode.epoch = epoch
        pending[:] = before


@contextlib.contextmanager
def unchanged_symbols(mode: FakeTensorMode) -> Iterator[None]:
    """Refuse assumptions about a symbolic size: reading its value raises an error.

    That a size is not one number (1, mostly) may be assumed, as torch.export does, and that it is
    neither 0 nor 1, by which torch knows contiguous tensors; nothing records it.
    """
    environment = mode.shape_env
    if environment is None:
        yield
        return
    # They report each of those errors.
    logs = [logging.getLogger(name) for name in _LOGS]
    were_disabled = [log.disabled for log in logs]
    for log in logs:
        log.disabled = True
    refuse = environment._check_frozen

    def refuse_most(expression: Any, value: Any) -> None:  # noqa: ANN401
        unequal = (sympy.Ne, sympy.true), (sympy.Eq, sympy.false)
        if any(isinstance(expression, kind) and value is known for kind, known in unequal):
            return
        below = isinstance(expression, sympy.StrictLessThan) and expression.rhs == 2
        if not (below and value is sympy.false):
            refuse(expression, value)

    environment._check_frozen = refuse_most  # type: ignore[assignment,method-assign]
    try:
        with environment.error_on_new_guards(), environment.suppress_guards():
            yield
    finally:
        del environment._check_frozen
        for log, was_disabled in zip(logs, were_disabled, strict=True):
            log.disabled = was_disabled
