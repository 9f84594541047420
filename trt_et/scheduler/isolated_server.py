"""Runs in the process of an ``IsolatedProcess``; heavy imports wait until a call needs them."""

from __future__ import annotations

import contextlib
import pickle
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

__all__ = ["serve"]

# What an idle process holds, TensorRT's builder libraries above all, is not kept for longer.
_IDLE_SECONDS: Final = 60


def serve(descriptor: int) -> None:
    """Make the calls that come over a pipe: (function, args, kwargs) to (result, error's text)."""
    with contextlib.suppress(OSError):
        # Where memory runs out, the kernel ends this process, not the export.
        Path("/proc/self/oom_score_adj").write_text("1000")
    connection = Connection(descriptor)
    connection.send_bytes(b"ready")
    with contextlib.suppress(EOFError, OSError):  # The other process is gone.
        while connection.poll(_IDLE_SECONDS):
            call = connection.recv_bytes()
            connection.send_bytes(b"received")
            connection.send_bytes(pickle.dumps(_answer(call)))


def _answer(call: bytes) -> tuple[Any, str]:
    try:
        function, args, kwargs = pickle.loads(call)
    except Exception as error:
        # Whatever an import of the caller's modules raises.
        return None, (
            f"the builder cannot be loaded in another process ({type(error).__name__}: {error}); "
            "define it in a module that can be imported, not in the script itself"
        )
    return function(*args, **kwargs), ""
