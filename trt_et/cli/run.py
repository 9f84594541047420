"""``trt-et run``: run a program once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trt_et.cli import common
from trt_et.cli.output import check_output
from trt_et.errors import OptionError


def run_command(
    file: Annotated[Path, typer.Argument(help="A .pte file.", metavar="FILE")],
    inputs: common.Inputs = None,
    shapes: common.Shapes = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the outputs to this .npz.")
    ] = None,
    method: common.Method = "",
    cuda: common.Cuda = "",
    seed: common.Seed = 0,
    data: common.Data = None,
    as_json: common.Json = False,
) -> None:
    """Run a method once, in a new process, and summarize its outputs."""
    from trt_et.cli.program import Request, ask_worker

    sizes = common.parse_shapes(shapes)
    request = Request(
        *("run", str(file), method, cuda, inputs or (), sizes, seed, str(output or "")),
        data=str(data or ""),
    )
    if output is not None:
        if output.suffix != ".npz":
            raise OptionError(f"{output} cannot be written: expected a name that ends in .npz")
        check_output(output)
    answer = ask_worker(request)
    if output is not None:
        typer.echo(f"wrote {output}", err=True)
    if as_json:
        common.print_json(answer)
        return
    console = common.make_console()
    for index, facts in enumerate(answer["outputs"]):
        line = f"output {facts['name'] or index}: {facts['dtype']} {facts['shape']}"
        if "mean" in facts:
            line += f", from {facts['min']:.6g} to {facts['max']:.6g}, mean {facts['mean']:.6g}"
        if facts.get("nans"):
            line += f", {facts['nans']} NaNs"
        console.print(line)
