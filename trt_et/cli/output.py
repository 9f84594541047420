"""The files that a command writes."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import typer

from trt_et.errors import RunError


def check_output(output: Path) -> None:
    """Check that a file can be written there, before work that can take minutes.

    Raises:
        RunError: Its folder does not exist, or it is a folder.
    """
    if not output.parent.is_dir():
        raise RunError(f"{output} cannot be written: there is no folder {output.parent}")
    if output.is_dir():
        raise RunError(f"{output} cannot be written: it is a folder")


def write_page(output: Path, page: str) -> None:
    """Write a page of HTML as ``write_output`` writes a file, and say so on stderr.

    Raises:
        RunError: It cannot be written.
    """
    write_output(output, lambda file: file.write(page.encode()))
    typer.echo(f"wrote {output}", err=True)


def write_output(output: Path, write: Callable[[BinaryIO], object]) -> None:
    """Write a file; it appears when it is complete, in place of an older one.

    Raises:
        RunError: It cannot be written.
    """
    target = output.resolve()  # A link stays a link.
    unfinished = target.with_name(f"{target.name}.{secrets.token_hex(4)}.part")
    try:
        if target.exists() and not target.is_file():  # A device or a pipe cannot be replaced.
            with target.open("wb") as file:
                write(file)
            return
        with unfinished.open("xb") as file:
            write(file)
        unfinished.replace(target)
    except OSError as error:
        raise RunError(f"{output} cannot be written: {error}") from error
    finally:
        unfinished.unlink(missing_ok=True)
