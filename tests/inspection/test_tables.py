"""Tables for a terminal and for a notebook."""

from __future__ import annotations

import io

from rich.console import Console

from trt_et.inspection.tables import Table, size_text

TABLE = Table(
    "Engines", ("engine", "note", "bytes"), (("[bold]x", "", "7"), ("<b>", "", "12")), ["bytes"]
)


def test_a_terminal_shows_texts_as_they_are():
    console = Console(file=io.StringIO(), width=80)
    console.print(TABLE)
    printed = console.file.getvalue()
    assert "[bold]x" in printed
    assert "      7  " in printed  # Numbers are aligned at the right.


def test_a_notebook_shows_a_table_with_its_texts_escaped():
    shown = TABLE.html()
    assert "<b>Engines</b>" in shown
    assert "&lt;b&gt;" in shown
    assert '<td style="text-align:right">12</td>' in shown


def test_columns_without_any_text_can_be_left_out():
    assert TABLE.without_empty_columns().headings == ("engine", "bytes")
    assert TABLE.without_empty_columns().rows == (("[bold]x", "7"), ("<b>", "12"))


def test_sizes_are_read_easily():
    assert [size_text(n) for n in (12, 1536, 5 << 20, 3 << 40)] == [
        "12 B",
        "1.5 KiB",
        "5.0 MiB",
        "3.0 TiB",
    ]
