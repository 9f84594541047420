"""What the sub-commands share: output, errors and exit status."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from trt_et.errors import OptionError, TrtEtError

if TYPE_CHECKING:
    from rich.console import Console

__all__ = [
    "FAILED",
    "WRONG_USAGE",
    "Json",
    "errors_on_one_line",
    "fail",
    "make_console",
    "print_json",
]

FAILED: Final = 1
WRONG_USAGE: Final = 2
# A line that no terminal shows is not wrapped: `trt-et ... | grep` sees whole lines.
_WIDTH_WITHOUT_TERMINAL: Final = 100_000

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


def make_console() -> Console:
    """Standard output; lines are as long as they are where it is no terminal."""
    from rich.console import Console

    width = None if sys.stdout.isatty() else _WIDTH_WITHOUT_TERMINAL
    return Console(width=width, soft_wrap=True, highlight=False, markup=False, emoji=False)


def print_json(document: Any) -> None:  # noqa: ANN401
    """One JSON document on standard output."""
    typer.echo(json.dumps(document, indent=2, default=str))


def fail(message: str, code: int = FAILED) -> typer.Exit:
    """Print one line on standard error.

    Returns:
        What to raise.
    """
    typer.echo("trt-et: " + " ".join(message.split()), err=True)
    return typer.Exit(code)


@contextlib.contextmanager
def errors_on_one_line() -> Iterator[None]:
    """Errors that users can meet become one line and an exit status instead of a traceback."""
    try:
        yield
    except OptionError as error:
        raise fail(str(error), WRONG_USAGE) from error
    except (TrtEtError, OSError) as error:
        raise fail(str(error)) from error
