"""Tables for a terminal and for a notebook."""

from __future__ import annotations

import html
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table as RichTable


@dataclass(frozen=True)
class Table:
    """A table of texts; the columns with the headings ``numbers`` are aligned at the right."""

    title: str
    headings: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    numbers: Collection[str] = ()

    def without_empty_columns(self) -> Table:
        """Return the table without the columns that have no text in any row."""
        kept = [any(column) for column in zip(*self.rows, strict=True)]
        rows = tuple(tuple(compress(row, kept)) for row in self.rows)
        return replace(self, headings=tuple(compress(self.headings, kept)), rows=rows)

    def __rich__(self) -> RichTable:
        from rich import box
        from rich.table import Table as RichTable
        from rich.text import Text

        table = RichTable(title=Text(self.title), title_justify="left", box=box.SIMPLE)
        for heading in self.headings:
            table.add_column(heading, justify="right" if heading in self.numbers else "left")
        for row in self.rows:
            table.add_row(*map(Text, row))  # Text: "[2, 3]" is no markup.
        return table

    def html(self) -> str:
        """Return the table as HTML."""
        sides = ["right" if heading in self.numbers else "left" for heading in self.headings]

        def cells(tag: str, texts: Iterable[str]) -> str:
            return "".join(
                f'<{tag} style="text-align:{side}">'
                f"{html.escape(text).replace(chr(10), '<br>')}</{tag}>"
                for side, text in zip(sides, texts, strict=True)
            )

        rows = "".join(f"<tr>{cells('td', row)}</tr>" for row in self.rows)
        return (
            f"<p><b>{html.escape(self.title)}</b></p><table><thead><tr>"
            f"{cells('th', self.headings)}</tr></thead><tbody>{rows}</tbody></table>"
        )


class Shown(ABC):
    """Facts that a terminal (with ``rich``) and a notebook show as tables."""

    @abstractmethod
    def tables(self) -> Iterable[Table]:
        """Return the tables."""

    def __rich__(self) -> Group:
        from rich.console import Group

        return Group(*self.tables())

    def _repr_html_(self) -> str:
        return f"<div>{''.join(table.html() for table in self.tables())}</div>"


def size_text(count: int) -> str:
    """Format a number of bytes, such as ``1.5 MiB``."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.1f} {unit}" if unit != "B" else f"{count} B"
        size /= 1024
    return f"{size:.1f} TiB"
