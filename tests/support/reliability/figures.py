"""The figures, how much is done for each, and their lines."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import Final

_FIGURES: Final = tuple(f"R{number}" for number in range(1, 15))


@dataclass(frozen=True)
class Part:
    """One number of a figure; a figure may have several."""

    figure: str  # Such as "R1".
    ok: bool
    text: str  # The number and its unit.


@dataclass(frozen=True)
class Amounts:
    mutants: int = 1_000_000  # Of engine blobs, for the parser under sanitizers.
    edits_per_byte: int = 255  # Other values for each byte of a blob of 4 KiB.
    flips_in_blob: int = 10_000  # In the engine's segment of each file.
    flips_elsewhere: int = 400  # In the rest of a file.
    cycles: int = 10_000  # Loads and unloads.
    executes: int = 1_000_000  # Runs of one method.
    sanitized_executes: int = 20_000  # The same under a sanitizer, which also counts allocations.
    thread_executes: int = 1_000  # Runs by each of eight threads under TSan.
    thread_loads: int = 200  # Loads by all of them.
    cache_kills: int = 50  # Killed writers of the engine cache.
    soak_seconds: int = 10  # Of mixed use by four threads.


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


def lines(figures: Collection[str], parts: Iterable[Part]) -> list[str]:
    """Return a line for each of the figures; a figure without a number is missed."""
    found: dict[str, list[Part]] = {figure: [] for figure in _FIGURES if figure in figures}
    for part in parts:
        found[part.figure].append(part)
    return [
        f"{figure} {'ok' if of and all(part.ok for part in of) else 'MISSED'} "
        + ("; ".join(part.text for part in of) or "not measured")
        for figure, of in found.items()
    ]
