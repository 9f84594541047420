"""``trt-et doctor``: what is installed here, and what will work with it."""

from __future__ import annotations

import typer

from trt_et.cli.output import FAILED, Json, errors_on_one_line, make_console, print_json

__all__ = ["doctor_command"]


def doctor_command(as_json: Json = False) -> None:
    """Show what is installed, what will work, and how to get what is missing.

    Exits with 1 where engines of TensorRT cannot run on a GPU here.
    """
    from dataclasses import asdict

    from trt_et.tools.diagnosis import diagnose

    with errors_on_one_line():
        diagnosis = diagnose()
    if as_json:
        print_json({**asdict(diagnosis), "runs_on_gpu": diagnosis.runs_on_gpu})
    else:
        console = make_console()
        for finding in diagnosis.findings:
            mark, style = ("ok", None) if finding.found else ("missing", "red")
            console.print(f"{mark:8}{finding.subject}: {finding.fact}", style=style)
            if finding.remedy:
                console.print(f"{'':8}-> {finding.remedy}")
        console.print()
        for ability in diagnosis.abilities:
            answer = f"no: {ability.obstacle}" if ability.obstacle else "yes"
            console.print(f"{ability.name}? {answer}", style="red" if ability.obstacle else "green")
    if not diagnosis.runs_on_gpu:
        raise typer.Exit(FAILED)
