"""Tables for a terminal and for a notebook."""

from __future__ import annotations

import html
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table as RichTable

__all__ = ["Table", "html_of", "size_text"]


@dataclass(frozen=True)
class Table:
    """A table of texts.

    Attributes:
        title: The line above it.
        headings: The headings of its columns.
        rows: A cell for each heading.
        numbers: The headings of columns that are aligned at the right.
    """

    title: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numbers: Collection[str] = ()

    def without_empty_columns(self) -> Table:
        """Return the table without the columns that have no text in any row."""
        kept = [at for at in range(len(self.headings)) if any(row[at] for row in self.rows)]
        return Table(
            self.title,
            tuple(self.headings[at] for at in kept),
            tuple(tuple(row[at] for at in kept) for row in self.rows),
            self.numbers,
        )

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


def html_of(tables: Iterable[Table]) -> str:
    """Return tables as HTML, one below the other."""
    return f"<div>{''.join(table.html() for table in tables)}</div>"


def size_text(count: int) -> str:
    """Format a number of bytes, such as ``1.5 MiB``."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.1f} {unit}" if unit != "B" else f"{count} B"
        size /= 1024
    return f"{size:.1f} TiB"
