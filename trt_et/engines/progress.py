"""Follows builds and stops them; reports them as events for programs, as bars for people."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from trt_et.errors import BuildCancelled, OptionError

Report = Callable[[str, int, int, float], None]


class BuildMonitor:
    """Follows the phases of one build, as TensorRT or a caller's builder names them.

    Every method may be called from any thread, and only ``check`` raises, after the build:
    exceptions must not pass through TensorRT's C++ code.

    Args:
        report: Called with a phase, its steps done, its steps, and the share of the whole build
            that is done (0 to 1).
        stop: Called at every step; a true value stops the build.
    """

    def __init__(
        self, report: Report | None = None, stop: Callable[[], bool] = lambda: False
    ) -> None:
        self._report = report
        self._stop = stop
        self._lock = threading.RLock()
        self._phases: dict[str, tuple[int, int]] = {}  # Steps that are done, and all.
        self._reported = 0.0
        self._cancelled = False
        self._failure: BaseException | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        # It follows a build in this process; a worker process makes its own.
        return (BuildMonitor, ())

    @property
    def cancelled(self) -> bool:
        """True once the build shall stop."""
        return self._cancelled or self._stop()

    def cancel(self) -> None:
        """Make the build stop at its next step."""
        self._cancelled = True

    def phase_start(self, phase: str, parent: str | None, steps: int) -> None:
        """Begin a phase of ``steps`` steps, within the phase ``parent``."""
        with self._lock:
            if parent is None:
                self._phases.clear()
            self._phases[phase] = (0, max(1, steps))
            self._notify(phase)

    def step_complete(self, phase: str, step: int) -> bool:
        """Finish step number ``step`` of a phase; return whether to go on."""
        with self._lock:
            if phase in self._phases:
                self._phases[phase] = (step + 1, self._phases[phase][1])
                self._notify(phase)
            return not self.cancelled

    def phase_finish(self, phase: str) -> None:
        """End a phase."""
        with self._lock:
            self._phases.pop(phase, None)

    def check(self) -> None:
        """Raise the listener's exception, or an error if the build was stopped.

        Raises:
            BuildCancelled: The build was stopped.
        """
        if self._failure is not None:
            raise self._failure
        if self.cancelled:
            raise BuildCancelled("the build was stopped")

    def _notify(self, phase: str) -> None:
        if self._report is None or self._failure is not None:
            return
        try:
            self._report(phase, *self._phases[phase], self._share())
        except BaseException as error:
            # A mistake of the listener, or Ctrl-C: raised once TensorRT has returned.
            self._failure = error
            self.cancel()

    def _share(self) -> float:
        """Return the share that is done; each phase is one step of the phase before it."""
        share = 0.0
        for done, steps in reversed(self._phases.values()):
            share = min(1.0, (done + share) / steps)
        # A phase may end before its last step; the reported share must not fall.
        self._reported = max(self._reported, share)
        return self._reported


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
        self._listener = option if callable(option) else None
        if option is True and total and sys.stderr is not None and sys.stderr.isatty():
            self._bars = _Bars(total)
            self._listener = self._bars.show

    def monitor(self, partition: str) -> BuildMonitor:
        """Return the monitor for the build of a partition's engine in this process."""
        return BuildMonitor(None if self._listener is None else partial(self._send, partition))

    def engine_done(self, partition: str) -> None:
        """Count an engine that was built or found."""
        with self._lock:
            self._done += 1
            self._send(partition, "done", 1, 1, 1.0)

    def __enter__(self) -> ProgressSession:
        if self._bars is not None:
            self._bars.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bars is not None:
            self._bars.progress.stop()

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

        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            TimeElapsedColumn(),
            # Long phases wrap; rich would cut them off.
            TextColumn("{task.fields[phase]}", table_column=Column(overflow="fold")),
            console=Console(stderr=True),
            transient=True,
        )
        self._all = self.progress.add_task(f"engines 0/{total}", total=total, phase="")
        self._engines: dict[str, Any] = {}

    def show(self, event: ProgressEvent) -> None:
        task = self._engines.get(event.partition)
        if event.phase == "done":
            if task is not None:
                self.progress.remove_task(self._engines.pop(event.partition))
            text = f"engines {event.engines_done}/{event.engines_total}"
            self.progress.update(self._all, completed=event.engines_done, description=text)
            return
        if task is None:
            task = self.progress.add_task(event.partition, total=1.0, phase="")
            self._engines[event.partition] = task
        self.progress.update(task, completed=event.fraction, phase=event.phase)
