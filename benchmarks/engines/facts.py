"""What the engines of a model say of a call, in the form of the file of results."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from trt_et.inspection import read_kernels

_JUMP: Final = b" cjmp={ "  # A conditional jump in the text that ``read_kernels`` reads.


def facts_of(engines: Sequence[bytes]) -> dict[str, Any]:
    """Add up what is read of the engines of one program.

    Returns:
        ``engines`` and ``kernels``: their numbers. ``activation_bytes`` and ``constant_bytes``:
        what kernels read and write, None if some sizes are dynamic. ``activation_memory_bytes``.
        ``has_loops``: what is in a loop is counted once, so these are too small.

    Raises:
        ValueError: There is no engine, or one cannot be read.
    """
    found = [known for known in map(read_kernels, engines) if known is not None]
    if not found or len(found) < len(engines):
        raise ValueError(f"the kernels of {len(found)} of {len(engines)} engines are known")
    return {
        "engines": len(found),
        "kernels": sum(len(engine.kernels) for engine in found),
        "activation_bytes": _sum(engine.traffic for engine in found),
        "constant_bytes": _sum(engine.constant_bytes for engine in found),
        "activation_memory_bytes": sum(engine.activation_memory for engine in found),
        "has_loops": any(_JUMP in engine for engine in engines),
    }


def _sum(counts: Iterable[int | None]) -> int | None:
    known = list(counts)
    return None if None in known else sum(count for count in known if count is not None)
