"""Tracing a partition again: one lock for what only one thread may do at a time, and clean symbols.

Tracing graphs (fake modes, symbolic shapes), Torch-TensorRT's converter registry, and the answers
given in a GPU's place (``vendor.without_gpu``) are state of the whole process. Building an engine,
which takes the time, needs none of them and runs outside of the lock.
"""

from __future__ import annotations

import threading
from typing import Final

from torch.export import ExportedProgram

__all__ = ["TRACING", "forget_pending_symbols"]

TRACING: Final = threading.RLock()


def forget_pending_symbols(program: ExportedProgram) -> None:
    """Drop the data-dependent sizes that other parts of the whole program left behind.

    A partition has none of its own, but it shares its fake mode with the program that it was cut
    out of, and tracing it again would ask where those sizes went.
    """
    for node in program.graph.nodes:
        value = node.meta.get("val")
        environment = getattr(getattr(value, "fake_mode", None), "shape_env", None)
        if environment is not None:
            environment.pending_fresh_unbacked_symbols.clear()
            return
