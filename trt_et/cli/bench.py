"""``trt-et bench``: times of one or several programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trt_et.cli.output import Json, errors_on_one_line, make_console, print_json
from trt_et.cli.program_options import Cuda, Inputs, Method, Seed, Shapes, parse_shapes

__all__ = ["bench_command"]


def bench_command(
    files: Annotated[list[Path], typer.Argument(help="One or several .pte.", metavar="FILE...")],
    inputs: Inputs = None,
    shapes: Shapes = None,
    repeat: Annotated[int, typer.Option(min=1, help="Calls that are timed.")] = 100,
    warm_up: Annotated[int, typer.Option(min=0, help="Calls before them.")] = 10,
    plot: Annotated[
        Path | None, typer.Option("--plot", help="Draw the latencies into this .png and .svg.")
    ] = None,
    as_markdown: Annotated[
        bool, typer.Option("--markdown", help="Print a Markdown table.")
    ] = False,
    method: Method = "",
    cuda: Cuda = "",
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Time programs: latency percentiles, throughput, copies and waits per call, memory.

    Each file runs in a process of its own, one after the other. Times are those of a call from
    Python, host inputs to host outputs. Copies and waits are counted on simulated GPUs only.
    """
    from trt_et.tools.benchmark import HEADINGS, markdown, summarize
    from trt_et.tools.benchmark import plot as draw
    from trt_et.tools.requests import Request, ask_worker

    sizes = parse_shapes(shapes)
    answers = {}
    with errors_on_one_line():
        for file in files:
            request = Request("bench", str(file), method, cuda, tuple(inputs or ()), sizes, seed)
            request = request.timed(warm_up, repeat)
            answers[str(file)] = ask_worker(request)
        timings = [summarize(Path(name).name, answer) for name, answer in answers.items()]
        written = draw(timings, plot) if plot else ()
    if as_json:
        print_json(answers)
    elif as_markdown:
        typer.echo(markdown(timings))
    else:
        from rich.table import Table

        table = Table(*HEADINGS, box=None)
        for timing in timings:
            table.add_row(*timing.row())
        make_console().print(table)
    for target in written:
        typer.echo(f"wrote {target}", err=True)
