"""Trace a partition again: a lock for state of the process, and clean symbols.

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
from torch.export import ExportedProgram

from trt_et.graph.arguments import fake_mode_of
from trt_et.graph.fragment import Fragment

TRACING: Final = threading.RLock()


@contextlib.contextmanager
def unchanged_fake_modes(programs: Iterable[ExportedProgram]) -> Iterator[None]:
    """Restore the fake modes of programs after the block.

    Partitions share their fake mode with the caller's program. Tracing one advances the mode's
    ``epoch``, which invalidates the cached results of ``item()``: the next pass over the whole
    program makes new symbols for the same sizes, and the program cannot be decomposed again
    (``PendingUnbackedSymbolNotFound``, seen with torch 2.13).
    """
    modes = [fake_mode_of(program.graph.nodes) for program in programs]
    epochs = {mode: mode.epoch for mode in modes if mode is not None}
    try:
        yield
    finally:
        for mode, epoch in epochs.items():
            mode.epoch = epoch


@contextlib.contextmanager
def unchanged_by_tracing(fragment: Fragment) -> Iterator[None]:
    """Leave the fake mode of a fragment's graph and its ``ShapeEnv`` as they are.

    A decomposition that compares sizes would otherwise add a guard, or replace a symbol by a
    number, in the caller's program.
    """
    mode = fake_mode_of((*fragment.calls, *fragment.sources))
    environment = mode.shape_env if mode else None
    if mode is None or environment is None:
        yield
        return
    epoch, pending = mode.epoch, list(environment.pending_fresh_unbacked_symbols)
    environment.pending_fresh_unbacked_symbols.clear()
    try:
        with environment.suppress_guards():
            yield
    finally:
        mode.epoch = epoch
        environment.pending_fresh_unbacked_symbols[:] = pending


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
    log = logging.getLogger("torch.fx.experimental.symbolic_shapes")
    was_disabled, log.disabled = log.disabled, True  # It warns of each of those errors.
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
        log.disabled = was_disabled


@contextlib.contextmanager
def clean_symbols(program: ExportedProgram) -> Iterator[None]:
    """Trace a partition in the block: drop sizes that others left over, and assume nothing.

    A partition shares its fake mode with the whole program. Tracing it fails if data-dependent
    sizes of other parts are pending. What tracing assumes of a size would hold for the caller's
    program too: ExecuTorch would plan less memory, and refuse larger inputs.
    """
    mode = fake_mode_of(program.graph.nodes)
    environment = mode.shape_env if mode else None
    if environment is None:
        yield
        return
    environment.pending_fresh_unbacked_symbols.clear()
    with environment.suppress_guards():
        yield
