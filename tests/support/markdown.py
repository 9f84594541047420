"""Tables of the pages that are made from results."""

from __future__ import annotations

from collections.abc import Iterable


def table(columns: Iterable[object], rows: Iterable[Iterable[object]]) -> list[str]:
    columns = list(columns)
    return [_line(columns), "|---" * len(columns) + "|", *map(_line, rows)]


def _line(cells: Iterable[object]) -> str:
    return f"| {' | '.join(str(cell).replace('|', '/') for cell in cells)} |"
