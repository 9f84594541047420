"""Programs of ``executorch.runtime`` whose errors have a cause, and that take any strides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from executorch.runtime import Method, Program, Runtime

from trt_et.errors import BlobError, OptionError, RunError
from trt_et.inspection import MethodInfo, inspect_file
from trt_et.inspection.reader import read_program
from trt_et.runtime.explain import explained_errors
from trt_et.runtime.layout import lay_out

_FIRST_IMAGE_RANK = 4  # ExecuTorch has channels_last from here on.


class ExplainedMethod(Method):
    """A method whose ``execute`` raises ``RunError``, and takes tensors of any strides."""

    def execute(self, inputs: Sequence[Any]) -> Sequence[Any]:
        """Run the method, as ExecuTorch's does.

        Raises:
            RunError: ExecuTorch or the backend refuses the inputs, or fails.
            OptionError: ``inputs`` is a dictionary.
        """
        if isinstance(inputs, Mapping):
            raise OptionError(
                f"inputs is {type(inputs).__name__}; expected a list, in the order of the inputs "
                "of the exported program"
            )
        given = [inputs] if isinstance(inputs, torch.Tensor) else inputs
        if any(map(_needs_layout, given)):
            given = self._laid_out(given)
        with explained_errors():
            outputs: Sequence[Any] = super().execute(given)
        return outputs

    def belongs_to(self, program: ExplainedProgram, name: str) -> None:
        """Keep what ExecuTorch's method does not: its name, and the bytes that it reads."""
        self._name, self._source = name, program.source

    @cached_property
    def info(self) -> MethodInfo | None:
        """The method in the program's file; None: it cannot be read any more."""
        return _read_method(self._source, self._name)

    def _laid_out(self, inputs: Sequence[Any]) -> Sequence[Any]:
        if self.info is not None:
            return lay_out(self.info, inputs)
        if any(isinstance(each, torch.Tensor) and not each.is_contiguous() for each in inputs):
            raise RunError(
                "the program's file cannot be read any more, so the layout of its inputs is "
                "unknown; keep the file while its methods run, or pass tensors that are contiguous"
            )
        return inputs


class ExplainedProgram(Program):
    """A program whose methods raise ``RunError``, when they are loaded and when they run.

    Attributes:
        source: Its file, or its bytes.
    """

    source: bytes | str

    def load_method(self, name: str) -> Method:
        """Load a method, as ExecuTorch's program does; each one once."""
        with explained_errors():
            method = super().load_method(name)
        if not isinstance(method, ExplainedMethod):
            method.__class__ = ExplainedMethod
            method.belongs_to(self, name)
        return method


def load_explained(data: Any, **options: Any) -> Program:  # noqa: ANN401
    """Load a program with ``Runtime.load_program``."""
    with explained_errors():
        program = Runtime.get().load_program(data, **options)
    program.__class__ = ExplainedProgram
    program.source = str(Path(data).absolute()) if program._data is None else program._data
    return program


def _needs_layout(value: Any) -> bool:  # noqa: ANN401
    """Return whether a tensor may lie otherwise in memory than the program expects."""
    return isinstance(value, torch.Tensor) and (
        value.dim() >= _FIRST_IMAGE_RANK or not value.is_contiguous()
    )


def _read_method(source: bytes | str, name: str) -> MethodInfo | None:
    try:
        if isinstance(source, bytes):
            program = read_program(source, verify=False)
        else:
            program = inspect_file(source, verify=False)
    except BlobError:
        return None
    return next((method for method in program.methods if method.name == name), None)
