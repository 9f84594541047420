"""The command, in this process."""

from __future__ import annotations

from typer.testing import CliRunner, Result

from trt_et.cli import app


def invoke(*arguments: object, input: str | None = None) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], input=input)


def run(*arguments: object, code: int = 0, input: str | None = None) -> str:
    """Standard output, or what was printed where the command failed."""
    result = invoke(*arguments, input=input)
    assert result.exit_code == code, (result.output, result.exception)
    return result.output if code else result.stdout
