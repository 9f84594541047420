"""``trt-et run``: run a program once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trt_et.cli.output import Json, errors_on_one_line, make_console, print_json
from trt_et.cli.program_options import Cuda, Inputs, Method, Seed, Shapes, parse_shapes

__all__ = ["run_command"]


def run_command(
    file: Annotated[Path, typer.Argument(help="A .pte file.", metavar="FILE")],
    inputs: Inputs = None,
    shapes: Shapes = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the outputs to this .npz.")
    ] = None,
    method: Method = "",
    cuda: Cuda = "",
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Run a method once, in a process of its own, and summarize its outputs."""
    from trt_et.tools.requests import Request, ask_worker

    request = Request(
        "run",
        str(file),
        method,
        cuda,
        tuple(inputs or ()),
        parse_shapes(shapes),
        seed,
        str(output or ""),
    )
    with errors_on_one_line():
        found = ask_worker(request)
    if as_json:
        print_json(found)
        return
    console = make_console()
    for index, facts in enumerate(found["outputs"]):
        line = f"output {index}: {facts['dtype']} {facts['shape']}"
        if "mean" in facts:
            line += f", from {facts['min']:.6g} to {facts['max']:.6g}, mean {facts['mean']:.6g}"
        if facts.get("nans"):
            line += f", {facts['nans']} NaNs"
        console.print(line)
