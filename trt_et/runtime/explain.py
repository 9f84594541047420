"""Add the backend's message to errors of ``executorch.runtime``.

::

    from trt_et.runtime.explain import explained_errors

    with explained_errors():
        method = Runtime.get().load_program("model.pte").load_method("forward")
        outputs = method.execute(inputs)
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import trt_et.runtime
from trt_et.errors import RunError, TrtEtError

__all__ = ["explained_errors"]


@contextlib.contextmanager
def explained_errors(what: str = "ExecuTorch failed") -> Iterator[None]:
    """Raise :class:`trt_et.errors.RunError` instead of ExecuTorch's ``RuntimeError``.

    ExecuTorch reports a number. The new error's message also contains the backend's message.

    Args:
        what: The start of the message.

    Raises:
        RunError: Something in the block raised a ``RuntimeError``, which is its cause.
    """
    before = _clear()
    try:
        yield
    except RuntimeError as error:
        if trt_et.runtime._library is None:
            raise RunError(
                f"{what}: {error}: the TensorRT backend is not loaded in this process: call "
                "trt_et.runtime.load() before a program is loaded"
            ) from error
        raise RunError(f"{what}: {error}{_reason(before)}") from error


def _reason(before: str) -> str:
    reason = trt_et.runtime.last_error()
    if not reason:
        return ""
    return f": {reason}" if reason != before else f" (an earlier error was: {reason})"


def _clear() -> str:
    """Clear an earlier error of the backend, and return the one that remains."""
    if trt_et.runtime.last_error() and trt_et.runtime.status()["cuda"]:
        with contextlib.suppress(TrtEtError):
            trt_et.runtime.device_count()  # A call that succeeds clears the error.
    return trt_et.runtime.last_error()
