"""Programs of ``executorch.runtime`` whose errors have a cause (``explained_errors``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from executorch.runtime import Method, Program, Runtime

from trt_et.runtime.explain import explained_errors


class ExplainedMethod(Method):
    """A method whose ``execute`` raises ``RunError``.

    Attributes:
        data: The program's bytes, if it was loaded from bytes: ExecuTorch's method uses them and
            does not keep them.
    """

    data: bytes | None

    def execute(self, inputs: Sequence[Any]) -> Sequence[Any]:
        """Run the method, as ExecuTorch's does."""
        with explained_errors():
            outputs: Sequence[Any] = super().execute(inputs)
        return outputs


class ExplainedProgram(Program):
    """A program whose methods raise ``RunError``, when they are loaded and when they run."""

    def load_method(self, name: str) -> Method:
        """Load a method, as ExecuTorch's program does; each one once."""
        with explained_errors():
            method = super().load_method(name)
        method.__class__ = ExplainedMethod
        method.data = self._data
        return method


def load_explained(data: Any, **options: Any) -> Program:  # noqa: ANN401
    """Load a program with ``Runtime.load_program``."""
    with explained_errors():
        program = Runtime.get().load_program(data, **options)
    program.__class__ = ExplainedProgram
    return program
