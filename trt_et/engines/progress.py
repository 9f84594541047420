"""Reports the progress of an export's builds: events for programs, bars for people."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from trt_et.engines.monitor import BuildMonitor
from trt_et.errors import OptionError

__all__ = ["ProgressEvent", "ProgressOption", "ProgressSession", "checked_progress"]


@dataclass(frozen=True)
class ProgressEvent:
    """A step of an engine's build.

    Attributes:
        partition: The partition whose engine it is.
        phase: The builder's name of the phase; ``"done"`` once the engine is built or found.
        step: Steps of the phase that are done.
        steps: Steps of the phase.
        fraction: Share of this engine's build that is done, 0 to 1.
        engines_done: Engines of this export that are built or found.
        engines_total: Engines of this export.
    """

    partition: str
    phase: str
    step: int
    steps: int
    fraction: float
    engines_done: int
    engines_total: int


ProgressOption = bool | Callable[[ProgressEvent], None]


def checked_progress(option: object) -> ProgressOption:
    """Check the partitioner's option.

    Raises:
        OptionError: It is neither a bool nor a function.
    """
    if isinstance(option, bool) or callable(option):
        return option
    raise OptionError(
        f"progress is {option!r}; expected True (bars on a terminal), False, or a function that "
        "takes a ProgressEvent"
    )


class ProgressSession:
    """The builds of one export; a context manager.

    Listeners are called by the threads that build, one call at a time.

    Args:
        option: True: bars, if standard error is a terminal. False: nothing. A function: it gets
            every ``ProgressEvent``.
        total: Number of engines.
    """

    def __init__(self, option: ProgressOption, total: int) -> None:
        self._total = total
        self._done = 0
        self._lock = threading.RLock()
        self._bars: _Bars | None = None
        self._listener: Callable[[ProgressEvent], None] | None = None
        if callable(option):
            self._listener = option
        elif option and total and sys.stderr is not None and sys.stderr.isatty():
            self._bars = _Bars(total)
            self._listener = self._bars.show

    def monitor(self, partition: str, stop: Callable[[], bool] = lambda: False) -> BuildMonitor:
        """Return the monitor for the build of one engine in this process.

        Args:
            partition: The engine's partition.
            stop: See ``BuildMonitor``.
        """
        if self._listener is None:
            return BuildMonitor(None, stop)

        def report(phase: str, step: int, steps: int, fraction: float) -> None:
            self._send(partition, phase, step, steps, fraction)

        return BuildMonitor(report, stop)

    def engine_done(self, partition: str) -> None:
        """Count an engine that was built or found."""
        with self._lock:
            self._done += 1
            self._send(partition, "done", 1, 1, 1.0)

    def __enter__(self) -> ProgressSession:
        if self._bars is not None:
            self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bars is not None:
            self._bars.stop()

    def _send(self, partition: str, phase: str, step: int, steps: int, fraction: float) -> None:
        if self._listener is None:
            return
        with self._lock:
            self._listener(
                ProgressEvent(partition, phase, step, steps, fraction, self._done, self._total)
            )


class _Bars:
    """Shows one bar for all engines, and one for each engine that is being built."""

    def __init__(self, total: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
        from rich.table import Column

        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            TimeElapsedColumn(),
            # Long phases wrap; rich would cut them off.
            TextColumn("{task.fields[phase]}", table_column=Column(overflow="fold")),
            console=Console(stderr=True),
            transient=True,
        )
        self._all = self._progress.add_task(f"engines 0/{total}", total=total, phase="")
        self._engines: dict[str, Any] = {}

    def start(self) -> None:
        self._progress.start()

    def stop(self) -> None:
        self._progress.stop()

    def show(self, event: ProgressEvent) -> None:
        task = self._engines.get(event.partition)
        if event.phase == "done":
            if task is not None:
                self._progress.remove_task(self._engines.pop(event.partition))
            text = f"engines {event.engines_done}/{event.engines_total}"
            self._progress.update(self._all, completed=event.engines_done, description=text)
            return
        if task is None:
            task = self._progress.add_task(event.partition, total=1.0, phase="")
            self._engines[event.partition] = task
        self._progress.update(task, completed=event.fraction, phase=event.phase)
