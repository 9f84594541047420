"""An executor whose one process may crash: the next call gets a new one.

The process is not a spawned or forked copy of this one: it imports no ``__main__``, so a script
needs no guard, and it has none of this process's threads and locks.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import weakref
from collections.abc import Callable
from concurrent.futures import Executor, Future
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any, Final

from trt_et.errors import BuilderError

__all__ = ["IsolatedProcess", "ProcessEnded"]

# Python puts the current folder first, whose files are not to be imported.
_COMMAND: Final = (
    "import sys; sys.path = [folder for folder in sys.path if folder]; "
    "from trt_et.scheduler.isolated_server import serve; serve(int(sys.argv[1]))"
)


class ProcessEnded(Exception):
    """The process ended during a call; the text says how (``SIGSEGV``, ``exit status 1``)."""


class IsolatedProcess(Executor):
    """Makes calls in another process, one at a time: ``submit`` returns when the call is done.

    The process starts with the first call, serves the later ones, and ends with this object, or
    when it has nothing to do for a minute.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._end: Callable[[], object] = lambda: None

    def submit(
        self,
        function: Callable[..., Any],
        /,
        *args: Any,  # noqa: ANN401
        **kwargs: Any,  # noqa: ANN401
    ) -> Future[Any]:
        """Make a call there; the future has its result, :class:`ProcessEnded`, or an error.

        Raises:
            BuilderError: The call cannot be sent.
        """
        call = _pickled((function, args, kwargs))
        future: Future[Any] = Future()
        future.set_running_or_notify_cancel()
        try:
            future.set_result(self._ask(call))
        except (ProcessEnded, BuilderError) as error:
            future.set_exception(error)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the process."""
        self._end()
        self._process = None

    def _ask(self, call: bytes) -> Any:  # noqa: ANN401
        if self._process is None:
            self._start()
        try:
            try:
                self._send(call)
            except (EOFError, OSError):
                # It ended before it had the call: nothing was to do, or the last call crashed.
                self._start()
                self._send(call)
            result, error = pickle.loads(self._connection.recv_bytes())
        except (EOFError, OSError):
            assert self._process is not None
            raise ProcessEnded(_how_it_ended(self._process.wait())) from None
        except BaseException:
            self.shutdown()  # Ctrl-C: the build that nobody waits for any more ends at once.
            raise
        if error:
            raise BuilderError(error)
        return result

    def _send(self, call: bytes) -> None:
        self._connection.send_bytes(call)
        self._connection.recv_bytes()  # It has the call.

    def _start(self) -> None:
        self.shutdown()
        self._connection, theirs = Pipe()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _COMMAND, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                # Python 3.13 cannot import socket in a folder that was removed.
                cwd=_current_folder() or "/",
                # Ctrl-C comes to this process, which ends that one.
                start_new_session=True,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(_module_folders())},
            )
        self._end = weakref.finalize(self, _end, self._process, self._connection)
        try:
            self._connection.recv_bytes()  # It is ready.
        except EOFError:
            raise BuilderError(
                f"the process that engines are built in could not be started: it ended with "
                f"{_how_it_ended(self._process.wait())}; what it wrote is on standard error"
            ) from None


def _current_folder() -> str | None:
    try:
        return str(Path.cwd())
    except FileNotFoundError:  # It was removed.
        return None


def _module_folders() -> list[str]:
    """Where this process looks for modules, the current folder by its name."""
    folders = (folder or _current_folder() for folder in sys.path)
    return [folder for folder in folders if folder is not None]


def _pickled(call: object) -> bytes:
    try:
        return pickle.dumps(call)
    except Exception as error:
        # A builder of the caller's may raise whatever it likes.
        raise BuilderError(
            f"its build cannot be sent to another process: {type(error).__name__}: {error}"
        ) from error


def _end(process: subprocess.Popen[bytes], connection: Connection) -> None:
    connection.close()
    process.kill()
    process.wait()


def _how_it_ended(code: int) -> str:
    return signal.Signals(-code).name if code < 0 else f"exit status {code}"
