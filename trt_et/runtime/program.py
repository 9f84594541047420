"""Programs of ``executorch.runtime`` for threads: errors have a cause, inputs have any strides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any, Final

import torch
from executorch.extension.pybindings.portable_lib import ExecuTorchMethod, MethodMeta, TensorInfo
from executorch.runtime import Method, Program, Runtime

from trt_et.errors import BlobError, OptionError, RunError
from trt_et.inspection import TensorValue
from trt_et.inspection.reader import read_inputs
from trt_et.runtime.explain import explained_errors, in_turn
from trt_et.runtime.layout import lay_out

_FIRST_IMAGE_RANK: Final = 4  # ExecuTorch has channels_last from here on.
_TRIES: Final = 3

_Inputs = Sequence[TensorValue | None]


class _InTurn:
    """An object of ExecuTorch's bindings; its calls, and those of their results, hold the lock."""

    def __init__(self, bound: Any) -> None:  # noqa: ANN401
        self._bound = bound

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        function = getattr(self._bound, name)

        def call(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401
            with in_turn():
                found = function(*arguments, **named)
            bound = isinstance(found, ExecuTorchMethod | MethodMeta | TensorInfo)
            return _InTurn(found) if bound else found

        return call

    def __call__(self, *arguments: Any) -> Any:  # noqa: ANN401
        return self.__getattr__("__call__")(*arguments)

    def __repr__(self) -> str:
        return str(self.__getattr__("__repr__")())


class ExplainedMethod(Method):
    """A method whose ``execute`` raises ``RunError``, and takes tensors of any strides.

    Attributes:
        inputs: Its inputs in the program; None: they are unknown.
        data: The program's bytes, which the method reads; None: they are in a file.
    """

    inputs: _Inputs | None
    data: bytes | None

    def execute(self, inputs: Sequence[Any]) -> Sequence[Any]:
        """Run the method, as ExecuTorch's does.

        Raises:
            RunError: ExecuTorch or the backend refuses the inputs, or fails; or other threads do
                not let it run.
            OptionError: ``inputs`` is a dictionary.
        """
        if isinstance(inputs, Mapping):
            raise OptionError(
                f"inputs is {type(inputs).__name__}; expected a list, in the order of the inputs "
                "of the exported program"
            )
        given = [inputs] if isinstance(inputs, torch.Tensor) else inputs
        if any(map(_needs_layout, given)):
            if self.inputs is None:
                raise RunError(
                    "the layout in memory of the program's inputs is unknown, because its tables "
                    "cannot be read: `trt-et inspect FILE` has the reason"
                )
            given = lay_out(self.inputs, given)
        with explained_errors():
            outputs: Sequence[Any] = super().execute(given)
        return outputs


class ExplainedProgram(Program):
    """A program whose methods raise ``RunError``, when they are loaded and when they run.

    Attributes:
        inputs: Its methods' inputs by name, as they were when it was loaded.
        source: Its file, or its bytes.
    """

    inputs: Mapping[str, _Inputs]
    source: bytes | Path

    def load_method(self, name: str) -> Method:
        """Load a method, as ExecuTorch's program does; each one once."""
        with explained_errors(), in_turn():
            method = super().load_method(name)
            if not isinstance(method, ExplainedMethod):
                method.__class__ = ExplainedMethod
                method.inputs, method.data = self.inputs.get(name), self._data
        return method


def load_explained(data: Any, **options: Any) -> Program:  # noqa: ANN401
    """Load a program with ``Runtime.load_program``."""
    file = Path(data) if isinstance(data, str | Path) else None
    for _ in range(_TRIES):
        before = _version(file)
        with explained_errors(), in_turn():
            program = Runtime.get().load_program(data, **options)
        inputs = _read_inputs(program._data if file is None else file)
        if _version(file) == before:
            break
    else:
        raise RunError(
            f"{data} changes while it is loaded: write the new program to another file in its "
            "folder, and rename that"
        )
    program.__class__ = ExplainedProgram
    program._program, program.inputs = _InTurn(program._program), inputs
    program.source = program._data if file is None else file
    return program


def _version(file: Path | None) -> tuple[int, ...] | None:
    """Return what differs after a file was replaced or written to; None: there is no file."""
    try:
        found = file.stat() if file else None
    except OSError:
        return None
    return found and (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)


def _read_inputs(source: bytes | Path) -> dict[str, tuple[TensorValue | None, ...]]:
    try:
        if isinstance(source, bytes):
            return read_inputs(source)
        with source.open("rb") as file:
            return read_inputs(mmap(file.fileno(), 0, access=ACCESS_READ))
    except (BlobError, OSError, ValueError):  # A file without bytes cannot be mapped.
        return {}


def _needs_layout(value: Any) -> bool:  # noqa: ANN401
    """Return whether a tensor may lie otherwise in memory than the program expects."""
    return isinstance(value, torch.Tensor) and (
        value.dim() >= _FIRST_IMAGE_RANK or not value.is_contiguous()
    )
