"""``trt-et compare``: a program's outputs beside the eager model's."""

from __future__ import annotations

from collections import Counter
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
    per_partition: Annotated[
        bool, typer.Option("--per-partition", help="Compare each engine by itself, too.")
    ] = False,
    excluded_ops: Annotated[
        list[str] | None,
        typer.Option("--exclude", help="As at the export of FILE, for --per-partition."),
    ] = None,
    min_block_size: Annotated[
        int, typer.Option(min=1, help="As at the export of FILE, for --per-partition.")
    ] = 1,
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
        per_partition=per_partition,
        excluded_ops=tuple(excluded_ops or ()),
        min_block_size=min_block_size,
    )
    with errors_on_one_line():
        found = ask_worker(request)
    partitions = found.get("partitions", [])
    compared = [*found["outputs"], *(facts for part in partitions for facts in part["outputs"])]
    for facts in compared:
        facts["agrees"] = _agrees(facts, tolerance)
    agree = all(facts["agrees"] for facts in compared)
    if as_json:
        print_json({"agree": agree, "tolerance": tolerance, **found})
    else:
        _print(found["outputs"], partitions)
    if not agree:
        raise typer.Exit(FAILED)


def _print(outputs: list[dict[str, Any]], partitions: list[dict[str, Any]]) -> None:
    console = make_console()
    for index, facts in enumerate(outputs):
        console.print(f"output {index} {_line(facts)}", style=_style(facts))
    for part in partitions:
        counts = Counter(part["operators"])
        operators = ", ".join(f"{count} {name}" for name, count in counts.most_common(5))
        rest = f" and {len(counts) - 5} others" if len(counts) > 5 else ""
        console.print(f"{part['partition']} on {part['device']}: {operators}{rest}")
        for facts in part["outputs"]:
            console.print(f"  {facts['name']} {_line(facts)}", style=_style(facts))


def _style(facts: dict[str, Any]) -> str | None:
    return None if facts["agrees"] else "red"


def _agrees(facts: dict[str, Any], tolerance: float) -> bool:
    error = facts.get("largest_relative_error")
    return error is not None and error <= tolerance and facts["nans"] == facts["expected_nans"]


def _line(facts: dict[str, Any]) -> str:
    word = "agrees" if facts["agrees"] else "DIFFERS"
    if "largest_error" not in facts:
        return f"{word}: its shape is {facts['shape']}; the model's is {facts['expected_shape']}"
    line = (
        f"{word}: largest error {facts['largest_error']:.3g} "
        f"({facts['largest_relative_error']:.2%} of the largest value), "
        f"cosine {facts['cosine']:.6f}"
    )
    if facts["nans"] or facts["expected_nans"]:
        line += f", {facts['nans']} NaNs where the model has {facts['expected_nans']}"
    return line
