"""``trt-et inspect``: what a ``.pte`` holds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trt_et.cli.output import (
    FAILED,
    WRONG_USAGE,
    Json,
    errors_on_one_line,
    fail,
    make_console,
    print_json,
)

if TYPE_CHECKING:
    from trt_et.inspection import ProgramInfo

__all__ = ["inspect_command"]


def inspect_command(
    file: Annotated[Path, typer.Argument(help="A .pte file.", metavar="FILE")],
    diff: Annotated[
        Path | None,
        typer.Option("--diff", metavar="OTHER", help="Print how OTHER differs; exit with 1 if so."),
    ] = None,
    extract: Annotated[
        Path | None,
        typer.Option("--extract-engine", metavar="OUT", help="Write an engine's bytes to OUT."),
    ] = None,
    delegate: Annotated[
        int, typer.Option("--delegate", min=0, help="The delegate of --extract-engine.")
    ] = 0,
    method: Annotated[
        str | None,
        typer.Option("--method", help="The method of --extract-engine. [default: the first]"),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option("--html", metavar="OUT", help="Write one HTML page with the graph to OUT."),
    ] = None,
    verify: Annotated[
        bool, typer.Option("--verify/--no-verify", help="Check the engines' checksums.")
    ] = True,
    as_json: Json = False,
) -> None:
    """Show what a .pte holds: methods, delegates, engines, devices, memory, copies."""
    from trt_et.inspection import inspect_file
    from trt_et.inspection.document import to_document

    with errors_on_one_line():
        program = inspect_file(file, verify=verify)
        if diff is not None:
            _show_differences(program, inspect_file(diff, verify=verify), as_json=as_json)
            return
        if extract is not None:
            _extract(program, method, delegate, extract)
        if html is not None:
            from trt_et.inspection.html import html_page

            html.write_text(html_page(program, file.name), encoding="utf-8")
    if as_json:
        print_json(to_document(program))
    elif extract is None and html is None:
        _show(program)
    if program.problems:
        raise fail(f"{file} is damaged: " + "; ".join(program.problems))


def _show(program: ProgramInfo) -> None:
    from trt_et.inspection.text import describe

    console = make_console()
    for line in describe(program):
        style = "bold" if line.startswith("method ") else "red" if "DAMAGED" in line else None
        console.print(line, style=style)


def _show_differences(first: ProgramInfo, second: ProgramInfo, *, as_json: bool) -> None:
    from trt_et.inspection.document import differences, to_document

    found = list(differences(to_document(first), to_document(second)))
    if as_json:
        print_json({"differences": found})
    else:
        typer.echo("\n".join(found) or "no difference")
    if found:
        raise typer.Exit(FAILED)


def _extract(program: ProgramInfo, name: str | None, index: int, out: Path) -> None:
    from trt_et.blob.codec import decode_blob

    methods = {method.name: method for method in program.methods}
    name = name or program.methods[0].name
    if name not in methods:
        raise fail(f"there is no method {name!r}; there are {', '.join(methods)}", WRONG_USAGE)
    delegates = methods[name].delegates
    if index >= len(delegates):
        count = len(delegates)
        raise fail(
            f"method {name!r} has {count} delegates; there is no number {index}", WRONG_USAGE
        )
    chosen = delegates[index]
    if chosen.engine is None or chosen.problem:
        reason = chosen.problem or f"it is a delegate of {chosen.backend_id}"
        raise fail(f"delegate {index} of method {name!r} has no engine to extract: {reason}")
    with out.open("wb") as opened:
        opened.write(decode_blob(chosen.blob, verify=False).engine)
    typer.echo(f"wrote {chosen.engine_size} bytes to {out}", err=True)
