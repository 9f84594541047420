"""Shows the steps of a command on a terminal, each with its time."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trt_et.engines.progress import ProgressEvent


class Steps:
    """Shows the current step with a running clock, and a line for each finished one.

    Args:
        shown: False: show nothing. Nothing is shown either if standard error is no terminal.
    """

    def __init__(self, shown: bool = False) -> None:
        self._console: Any = None
        self._progress: Any = None
        self._name = ""
        if shown and sys.stderr.isatty():
            from rich.console import Console

            self._console = Console(stderr=True, highlight=False)

    @contextlib.contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Show a step until the block ends; a failed step leaves no line."""
        if self._console is None:
            yield
            return
        from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
        from rich.table import Column

        started = time.monotonic()
        self._name = name
        # Long phases wrap; rich would cut them off.
        text = TextColumn("{task.description}", table_column=Column(overflow="fold"), markup=False)
        columns = (SpinnerColumn(), TimeElapsedColumn(), text)
        with Progress(*columns, console=self._console, transient=True) as self._progress:
            self._progress.add_task(name, total=None)
            yield
        elapsed = time.monotonic() - started
        self._console.print(f"[green]✓[/green] {name} ({elapsed:.1f} s)")

    def show_build(self, event: ProgressEvent) -> None:
        """Show the build of an engine in the current step; an option ``progress``."""
        if self._console is None or self._progress is None:
            return
        text = f"{self._name}: {event.engines_done} of {event.engines_total} engines"
        if event.phase != "done":
            text += f", {event.partition} {event.fraction:.0%}: {event.phase}"
        self._progress.update(self._progress.task_ids[0], description=text)
