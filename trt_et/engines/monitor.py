"""Follows a build, and stops it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from trt_et.errors import BuildCancelled

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


def interruptible(function: Callable[[], bool], cancel: Callable[[], None]) -> bool:
    """Return the result of a function that stays in C++ for long; Ctrl-C can interrupt it.

    Python raises ``KeyboardInterrupt`` in the main thread once that thread runs Python code. So
    another thread calls the function, and the main thread waits. An interrupt calls ``cancel`` and
    is raised when the function has returned; a second interrupt does not wait.

    Args:
        function: The function. Its exceptions are raised here.
        cancel: Makes the function return early.
    """
    if threading.current_thread() is not threading.main_thread():
        return function()
    done: Future[bool] = Future()

    def work() -> None:
        try:
            done.set_result(function())
        except BaseException as error:
            # Raised in the thread that asked, below.
            done.set_exception(error)

    try:
        # An interrupt may come as soon as the thread runs.
        threading.Thread(target=work, name="trt-et build", daemon=True).start()
        done.exception()
    except BaseException:
        cancel()
        done.exception()
        raise
    return done.result()
