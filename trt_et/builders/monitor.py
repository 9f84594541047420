"""Progress of a build, and how to stop it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from trt_et.errors import BuildCancelled

__all__ = ["BuildMonitor", "interruptible"]

Report = Callable[[str, int, int, float], None]


@dataclass
class _Phase:
    steps: int
    done: int = 0


class BuildMonitor:
    """Follows the phases of one build; TensorRT's own, or those that a caller's builder names.

    Every method may be called from any thread, and none raises: exceptions must not pass through
    TensorRT's C++ code. What went wrong is raised by :meth:`check`, after the build.

    Args:
        report: Called with a phase, its steps done, its steps, and the share of the whole build
            that is done (0 to 1).
        stop: Asked at every step whether the build shall stop.
    """

    def __init__(
        self, report: Report | None = None, stop: Callable[[], bool] = lambda: False
    ) -> None:
        self._report = report
        self._stop = stop
        self._lock = threading.RLock()
        self._phases: dict[str, _Phase] = {}
        self._reported = 0.0
        self._cancelled = False
        self._failure: BaseException | None = None

    @property
    def cancelled(self) -> bool:
        """Whether the build shall stop as soon as it can."""
        return self._cancelled or self._stop()

    def cancel(self) -> None:
        """Make the build stop at its next step."""
        self._cancelled = True

    def phase_start(self, phase: str, parent: str | None, steps: int) -> None:
        """A phase of ``steps`` steps began, within the phase ``parent``."""
        with self._lock:
            if parent is None:
                self._phases.clear()
            self._phases[phase] = _Phase(max(1, steps))
            self._notify(phase)

    def step_complete(self, phase: str, step: int) -> bool:
        """Step number ``step`` of a phase is done; returns whether to go on."""
        with self._lock:
            if phase in self._phases:
                self._phases[phase].done = step + 1
                self._notify(phase)
            return not self.cancelled

    def phase_finish(self, phase: str) -> None:
        """A phase is over."""
        with self._lock:
            self._phases.pop(phase, None)

    def check(self) -> None:
        """Raise what a listener raised, or that the build was stopped.

        Raises:
            BuildCancelled: It was.
        """
        if self._failure is not None:
            raise self._failure
        if self.cancelled:
            raise BuildCancelled("the build was stopped")

    def _notify(self, phase: str) -> None:
        if self._report is None or self._failure is not None:
            return
        at = self._phases[phase]
        try:
            self._report(phase, at.done, at.steps, self._share())
        except BaseException as error:
            # A listener's own mistake, or Ctrl-C: kept until TensorRT has returned.
            self._failure = error
            self.cancel()

    def _share(self) -> float:
        """Phases lie within each other, oldest outermost; each is one step of the one around."""
        share = 0.0
        for phase in reversed(self._phases.values()):
            share = min(1.0, (phase.done + share) / phase.steps)
        # A phase may end before its last step; a share that was reported is not lowered.
        self._reported = max(self._reported, share)
        return self._reported


def interruptible(function: Callable[[], None], cancel: Callable[[], None]) -> None:
    """Call a function that works in C++ for long, so that Ctrl-C is noticed meanwhile.

    Python raises ``KeyboardInterrupt`` in the main thread, and not before it is back in Python. So
    the main thread waits, and another one works. ``cancel`` is called on an interrupt, which goes
    on once the function has returned; a second interrupt does not wait for that.

    Args:
        function: The work. What it raises is raised here.
        cancel: Asks it to return early.
    """
    if threading.current_thread() is not threading.main_thread():
        function()
        return
    failures: list[BaseException] = []
    done = threading.Event()

    def work() -> None:
        try:
            function()
        except BaseException as error:
            # Raised in the thread that asked, below.
            failures.append(error)
        finally:
            done.set()

    try:
        # An interrupt may come as soon as the thread runs.
        threading.Thread(target=work, name="trt-et build", daemon=True).start()
        done.wait()
    except BaseException:
        cancel()
        done.wait()
        raise
    if failures:
        raise failures[0]
