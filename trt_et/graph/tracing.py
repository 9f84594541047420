"""Tracing a partition again: one lock for what only one thread may do at a time, and clean symbols.

Tracing graphs (fake modes, symbolic shapes), Torch-TensorRT's converter registry, and the answers
given where there is no GPU (``torch_tensorrt_patches.without_gpu``) are state of the process.
Building an engine, which takes the time, needs none of them and runs outside of the lock.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator
from typing import Any, Final

from torch.export import ExportedProgram

__all__ = ["TRACING", "clear_pending_symbols", "unchanged_fake_modes"]

TRACING: Final = threading.RLock()


@contextlib.contextmanager
def unchanged_fake_modes(programs: Iterable[ExportedProgram]) -> Iterator[None]:
    """Leave the fake modes of programs as they are, whatever is traced meanwhile.

    Partitions share their fake mode with the caller's program. Tracing one advances the mode's
    ``epoch``, which ends the memory of what ``item()`` returned: the next pass over the whole
    program makes new symbols for the same sizes, and the program cannot be decomposed again
    (``PendingUnbackedSymbolNotFound``, seen with torch 2.13).
    """
    modes = {id(mode): mode for program in programs if (mode := _fake_mode(program)) is not None}
    epochs = {key: mode.epoch for key, mode in modes.items()}
    try:
        yield
    finally:
        for key, mode in modes.items():
            mode.epoch = epochs[key]


def clear_pending_symbols(program: ExportedProgram) -> None:
    """Drop the data-dependent sizes that other parts of the program left behind.

    A partition has none of its own, but it shares its fake mode with the program that it was cut
    out of, and tracing it again would ask where those sizes went.
    """
    environment = getattr(_fake_mode(program), "shape_env", None)
    if environment is not None:
        environment.pending_fresh_unbacked_symbols.clear()


def _fake_mode(program: ExportedProgram) -> Any:  # noqa: ANN401
    modes = (getattr(n.meta.get("val"), "fake_mode", None) for n in program.graph.nodes)
    return next((mode for mode in modes if mode is not None), None)
