"""``trt-et compare``: a program's outputs beside the eager model's."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from trt_et.cli.output import FAILED, Json, errors_on_one_line, make_console, print_json
from trt_et.cli.program_options import Cuda, Inputs, Method, Seed, Shapes, parse_shapes

__all__ = ["compare_command"]


def compare_command(
    model: Annotated[
        str,
        typer.Argument(
            help="A function that returns (module, example_inputs[, dynamic_shapes]).",
            metavar="MODULE:CALLABLE",
        ),
    ],
    file: Annotated[Path, typer.Argument(help="A .pte file.", metavar="FILE")],
    inputs: Inputs = None,
    shapes: Shapes = None,
    tolerance: Annotated[
        float,
        typer.Option(help="Largest error allowed, relative to an output's largest value.", min=0),
    ] = 1e-2,
    method: Method = "",
    cuda: Cuda = "",
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Compare a program with the eager model, output by output; exit with 1 if they differ.

    Both run on the model's example inputs, or on what --input or --shape say.
    """
    from trt_et.tools.requests import Request, ask_worker

    request = Request(
        "compare",
        str(file),
        method,
        cuda,
        tuple(inputs or ()),
        parse_shapes(shapes),
        seed,
        eager=model,
    )
    with errors_on_one_line():
        outputs = ask_worker(request)["outputs"]
    agree = [_agrees(facts, tolerance) for facts in outputs]
    if as_json:
        print_json({"agree": all(agree), "tolerance": tolerance, "outputs": outputs})
    else:
        console = make_console()
        for index, (facts, good) in enumerate(zip(outputs, agree, strict=True)):
            word = "agrees" if good else "DIFFERS"
            console.print(f"output {index} {word}: {_line(facts)}", style=None if good else "red")
    if not all(agree):
        raise typer.Exit(FAILED)


def _agrees(facts: dict[str, Any], tolerance: float) -> bool:
    error = facts.get("largest_relative_error")
    return error is not None and error <= tolerance and facts["nans"] == facts["expected_nans"]


def _line(facts: dict[str, Any]) -> str:
    if "largest_error" not in facts:
        return f"its shape is {facts['shape']}; the model's is {facts['expected_shape']}"
    line = (
        f"largest error {facts['largest_error']:.3g} ({facts['largest_relative_error']:.2%} of the "
        f"largest value), cosine {facts['cosine']:.6f}"
    )
    if facts["nans"] or facts["expected_nans"]:
        line += f", {facts['nans']} NaNs where the model has {facts['expected_nans']}"
    return line
