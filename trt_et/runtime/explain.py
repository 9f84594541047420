"""Add the backend's message to errors of ``executorch.runtime``.

::

    from trt_et.runtime.explain import explained_errors

    with explained_errors():
        method = Runtime.get().load_program("model.pte").load_method("forward")
        outputs = method.execute(inputs)

ExecuTorch checks inputs and files before it calls the backend. For these errors, the message comes
from the call of ``executorch.runtime`` that failed: its inputs, or its file.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from traceback import walk_tb
from types import TracebackType
from typing import Any, Final

import trt_et.runtime
from trt_et.errors import BlobError, RunError, TrtEtError

__all__ = ["explained_errors", "wrong_file"]

_FORMAT: Final = "ET12"  # Of programs that ExecuTorch reads.
_PATIENCE_S = 600


@contextlib.contextmanager
def explained_errors(what: str = "ExecuTorch failed") -> Iterator[None]:
    """Raise ``trt_et.errors.RunError`` instead of ExecuTorch's ``RuntimeError``.

    ExecuTorch reports a number. The new error's message also contains the backend's message, or
    ExecuTorch's reason to refuse the inputs or the file.

    Args:
        what: The start of the message.

    Raises:
        RunError: Something in the block raised a ``RuntimeError``, which is its cause, or the
            program lacks a method.
    """
    before = _clear()
    try:
        yield
    except KeyError as error:
        if program := _lacks_method(error.__traceback__):
            names = ", ".join(sorted(program.method_names))
            raise RunError(f"{what}: the program has no method {error}; it has {names}") from error
        raise
    except RuntimeError as error:
        if refused := _refused_by_executorch(str(error), error.__traceback__):
            raise RunError(f"{what}: {error}: {refused}") from error
        if trt_et.runtime._library is None:
            raise RunError(
                f"{what}: {error}: the TensorRT backend is not loaded in this process: call "
                "trt_et.runtime.load() before a program is loaded"
            ) from error
        reason = _reason(before)
        lacks_data = not reason or "external_data_map is null" in reason  # ExecuTorch's words.
        if lacks_data and _needs_data(str(error), error.__traceback__):
            reason = (
                ": if the program keeps weights in a file of its own (.ptd), load it with "
                "load_program(..., data_path=FILE), or with executor_runner --data_path FILE"
            )
        if str(error).endswith("0x:14"):
            reason = _missing_kernels(error.__traceback__) or reason
        raise RunError(f"{what}: {error}{reason}{_given(error.__traceback__)}") from error


@contextlib.contextmanager
def in_turn() -> Iterator[None]:
    """Hold ``executorch_lock``.

    Raises:
        RunError: Others hold it for ten minutes, without the time in which no Python code runs,
            such as that of an engine build.
    """
    for _ in range(_PATIENCE_S):
        if trt_et.runtime.executorch_lock.acquire(timeout=1):
            break
    else:
        what = f"other threads hold trt_et.runtime.executorch_lock for {_PATIENCE_S} s"
        raise RunError(f"{what}: a call of executorch.runtime, or code with the lock, goes on")
    try:
        yield
    finally:
        trt_et.runtime.executorch_lock.release()


def _refused_by_executorch(message: str, traceback: TracebackType | None) -> str:
    """Return the fault in the arguments of the failed call of ``executorch.runtime``.

    Empty if its arguments are right, or if the error comes from somewhere else.
    """
    for frame, _ in walk_tb(traceback):
        if frame.f_globals.get("__name__") == "executorch.runtime":
            given = frame.f_locals
            if frame.f_code.co_name == "execute" and "set_inputs" in message:
                with in_turn():
                    return _wrong_inputs(given["self"], given["inputs"])
            if frame.f_code.co_name == "load_program" and "data" in given:
                return wrong_file(given["data"]) or _wrong_data_file(given["data_path"])
    return ""


def _given(traceback: TracebackType | None) -> str:
    """Return the inputs of the failed run; empty: something else failed."""
    for frame, _ in walk_tb(traceback):
        if (frame.f_globals.get("__name__"), frame.f_code.co_name) == (
            "executorch.runtime",
            "execute",
        ):
            return f" (inputs: {', '.join(map(_text, frame.f_locals['inputs']))})"
    return ""


def _text(value: Any) -> str:  # noqa: ANN401
    if not hasattr(value, "dtype") or not hasattr(value, "shape"):
        return type(value).__name__
    return f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}"


def _lacks_method(traceback: TracebackType | None) -> Any:  # noqa: ANN401
    """Return the program of ``executorch.runtime`` that has no method of a name; None if none."""
    frame = [frame for frame, _ in walk_tb(traceback)][-1]
    is_lookup = frame.f_code.co_name == "load_method"
    is_lookup &= frame.f_globals.get("__name__") == "executorch.runtime"
    return frame.f_locals["self"] if is_lookup else None


def _needs_data(message: str, traceback: TracebackType | None) -> bool:
    """Return whether a method may have failed to load because a ``.ptd`` is missing."""
    functions = {frame.f_code.co_name for frame, _ in walk_tb(traceback)}
    return message.endswith("0x:2") and "load_method" in functions


def _missing_kernels(traceback: TracebackType | None) -> str:
    """Return the operators of the failed ``load_method`` that this process has no kernels for."""
    from executorch.runtime import Runtime

    for frame, _ in walk_tb(traceback):
        given = frame.f_locals
        if frame.f_code.co_name == "load_method" and hasattr(given.get("self"), "_data"):
            source = getattr(given["self"], "source", given["self"]._data)
            known = Runtime.get().operator_registry.operator_names
            used = _operators(source, given["name"]) if source else ()
            missing = [each for each in used if each not in known]
            if missing:
                return (
                    f": no kernel is registered for {', '.join(missing)}, which the export left to "
                    "the CPU: partitioner.report says why, and what to write instead"
                )
    return ""


def _operators(source: bytes | Path, name: str) -> Sequence[str]:
    from trt_et.inspection import inspect_file
    from trt_et.inspection.reader import read_program

    with contextlib.suppress(BlobError):
        if isinstance(source, bytes):
            program = read_program(source, verify=False)
        else:
            program = inspect_file(source, verify=False)
        return next((m.cpu_operators for m in program.methods if m.name == name), ())
    return ()


def _wrong_inputs(method: Any, inputs: Sequence[Any]) -> str:  # noqa: ANN401
    from trt_et.inspection.reader import DTYPES

    metadata, known = method.metadata, getattr(method, "inputs", ())
    count = metadata.num_inputs()
    if len(inputs) != count:
        return f"{len(inputs)} input(s) are given; expected {count}"
    wrong: list[str] = []
    smaller: list[str] = []
    for index, value in enumerate(inputs):
        try:
            expected = metadata.input_tensor_meta(index)
        except RuntimeError:
            continue  # An input that is no tensor.
        largest, dtype = list(expected.sizes()), DTYPES[expected.dtype()]
        at_most = "at most " if known and known[index].is_dynamic else ""
        text = f"input {index} is {_text(value)}; expected {dtype} {at_most}{largest}"
        if not hasattr(value, "dtype") or not hasattr(value, "shape"):
            wrong.append(text)
            continue
        given_dtype, sizes = str(value.dtype).removeprefix("torch."), list(value.shape)
        if (given_dtype, sizes) == (dtype, largest):
            continue
        # The sizes of a dynamic dimension may be smaller.
        fits = given_dtype == dtype and len(sizes) == len(largest)
        fits = fits and all(a <= b for a, b in zip(sizes, largest, strict=True))
        (smaller if fits else wrong).append(text)
    return "; ".join(wrong or smaller)


def _wrong_data_file(path: Any) -> str:  # noqa: ANN401
    from trt_et.inspection.data_file import read_data_file

    try:
        if path is not None:
            read_data_file(path)
    except BlobError as error:
        return str(error)
    return ""


def wrong_file(data: Any) -> str:  # noqa: ANN401
    """Return the fault in the header or the length of a program; empty: none."""
    from trt_et.inspection.reader import HEADER_SIZE, program_extents

    name = "the program"
    try:
        if isinstance(data, bytes | bytearray):
            start, size = bytes(data[:HEADER_SIZE]), len(data)
        elif isinstance(data, str | os.PathLike):
            name = os.fspath(data)
            size = Path(name).stat().st_size
            with Path(name).open("rb") as file:
                start = file.read(HEADER_SIZE)
        else:
            return ""
    except OSError as error:
        return f"{name} cannot be read: {error.strerror}"
    try:
        program_extents(start, size)
    except BlobError as error:
        return str(error).replace("it", name, 1)
    if size < HEADER_SIZE:
        return f"{name} is truncated: it has {size} bytes"
    version = start[4:8].decode(errors="replace")
    if version != _FORMAT:
        return f"{name} is of another version of ExecuTorch: its format is {version}, not {_FORMAT}"
    return ""


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
