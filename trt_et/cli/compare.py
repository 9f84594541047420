"""``trt-et compare``: compare a program's outputs with the eager model's."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer

from trt_et.cli import common
from trt_et.errors import OptionError


def compare_command(
    model: common.Model,
    file: Annotated[Path, typer.Argument(help="A .pte file.", metavar="FILE")],
    inputs: common.Inputs = None,
    shapes: common.Shapes = None,
    tolerance: Annotated[
        float,
        typer.Option(help="Largest error allowed, relative to an output's largest value.", min=0),
    ] = 1e-2,
    per_partition: Annotated[
        bool, typer.Option("--per-partition", help="Also compare each engine by itself.")
    ] = False,
    excluded_ops: Annotated[
        list[str] | None,
        typer.Option("--exclude", help="As at the export of FILE, for --per-partition."),
    ] = None,
    min_block_size: Annotated[
        int, typer.Option(min=1, help="As at the export of FILE, for --per-partition.")
    ] = 1,
    plot: Annotated[
        Path | None,
        typer.Option("--plot", help="Draw the errors, worst first, into a .png or .svg."),
    ] = None,
    method: common.Method = "",
    cuda: common.Cuda = "",
    seed: common.Seed = 0,
    data: common.Data = None,
    as_json: common.Json = False,
) -> None:
    """Compare a program with the eager model, output by output; exit with 1 if they differ.

    Both run on the model's example inputs, unless --input or --shape names others.
    """
    from trt_et.cli.program import Request, ask_worker

    request = Request(
        "compare",
        str(file),
        method,
        cuda,
        inputs or (),
        common.parse_shapes(shapes),
        seed,
        eager=model,
        per_partition=per_partition,
        excluded_ops=excluded_ops or (),
        min_block_size=min_block_size,
        data=str(data or ""),
    )
    if model.endswith(".pte") and ":" in str(file):
        raise OptionError(f"{model} is no model; it comes first: trt-et compare {file} {model}")
    if plot is not None:
        common.check_plot(plot)
    answer = ask_worker(request)
    parts = answer.get("partitions", [])
    compared = [*answer["outputs"], *(facts for part in parts for facts in part["outputs"])]
    for facts in compared:
        facts["agrees"] = _agrees(facts, tolerance)
    agree = all(facts["agrees"] for facts in compared)
    if as_json:
        common.print_json({"agree": agree, "tolerance": tolerance, **answer})
    else:
        _print(answer["outputs"], parts)
    if plot is not None:
        from trt_et.cli.comparison import Comparison

        Comparison(answer["outputs"], parts).plot(plot)
        typer.echo(f"wrote {plot}", err=True)
    if not agree:
        raise typer.Exit(common.FAILED)


def _agrees(facts: dict[str, Any], tolerance: float) -> bool:
    error = facts.get("largest_relative_error")
    return error is not None and error <= tolerance and facts["nans"] == facts["expected_nans"]


def _print(outputs: list[dict[str, Any]], parts: list[dict[str, Any]]) -> None:
    lines: list[tuple[str, dict[str, Any] | None]] = [
        (f"output {facts['name'] or index}", facts) for index, facts in enumerate(outputs)
    ]
    for part in parts:
        counts = Counter(part["operators"])
        operators = ", ".join(f"{count} {name}" for name, count in counts.most_common(5))
        rest = f" and {len(counts) - 5} others" if len(counts) > 5 else ""
        lines.append((f"{part['partition']} on {part['device']}: {operators}{rest}", None))
        lines += [(f"  {facts['name']}", facts) for facts in part["outputs"]]
    console = common.make_console()
    for title, facts in lines:
        style = "red" if facts and not facts["agrees"] else None
        console.print(f"{title} {_result(facts)}" if facts else title, style=style)


def _result(facts: dict[str, Any]) -> str:
    word = "agrees" if facts["agrees"] else "DIFFERS"
    if "largest_error" not in facts:
        return f"{word}: its shape is {facts['shape']}; the model's is {facts['expected_shape']}"
    line = (
        f"{word}: largest error {facts['largest_error']:.3g} "
        f"({facts['largest_relative_error']:.2%} of the largest value), "
        f"mean {facts['mean_error']:.3g}, cosine {facts['cosine']:.6f}, "
        f"SNR {facts['snr_db']:.1f} dB"
    )
    if facts["nans"] or facts["expected_nans"]:
        line += f", {facts['nans']} NaNs; the model has {facts['expected_nans']}"
    return line
