"""The figures, how much is done for each, and what they were found to be."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

__all__ = ["FIGURES", "LONG", "SHORT", "Amounts", "Part", "lines"]

FIGURES: Final = tuple(f"R{number}" for number in range(1, 15))


@dataclass(frozen=True)
class Part:
    """One number of a figure; a figure may have several.

    Attributes:
        figure: Such as ``R1``.
        ok: Whether it is as promised.
        text: The number, and what it counts.
    """

    figure: str
    ok: bool
    text: str


@dataclass(frozen=True)
class Amounts:
    """How much is done.

    Attributes:
        mutants: Of engine blobs, for the parser under sanitizers.
        edits_per_byte: Other values for each byte of a blob of 4 KiB.
        flips_in_blob: In the engine's segment of a file, for each file.
        flips_elsewhere: In the rest of a file.
        cycles: Loads and unloads.
        executes: Runs of one method.
        sanitized_executes: The same under a sanitizer, which also counts allocations.
        thread_executes: Runs by each of eight threads under TSan.
        thread_loads: Loads by all of them.
        cache_kills: Times that a process is killed while it writes to the engine cache.
        soak_seconds: Of mixed use by four threads.
    """

    mutants: int = 1_000_000
    edits_per_byte: int = 255
    flips_in_blob: int = 10_000
    flips_elsewhere: int = 400
    cycles: int = 10_000
    executes: int = 1_000_000
    sanitized_executes: int = 20_000
    thread_executes: int = 1_000
    thread_loads: int = 200
    cache_kills: int = 50
    soak_seconds: int = 10


SHORT: Final = Amounts()
LONG: Final = replace(
    SHORT,
    mutants=100_000_000,
    flips_elsewhere=10_000,
    sanitized_executes=1_000_000,
    thread_executes=100_000,
    thread_loads=1_000,
    cache_kills=200,
    soak_seconds=3600,
)


def lines(parts: Iterable[Part]) -> list[str]:
    """A line for each figure; one without any number is missed."""
    found: dict[str, list[Part]] = {figure: [] for figure in FIGURES}
    for part in parts:
        found[part.figure].append(part)
    return [
        f"{figure} {'ok' if of and all(part.ok for part in of) else 'MISSED'} "
        + ("; ".join(part.text for part in of) or "not measured")
        for figure, of in found.items()
    ]
