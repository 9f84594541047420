"""``trt-et bench``: time programs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from trt_et.cli import common
from trt_et.errors import OptionError

_HEADINGS: Final = (
    "file",
    *("p50 ms", "p90 ms", "p99 ms"),
    "calls/s",
    "load ms",
    *("copies/call", "waits/call"),
    *("planned", "peak memory"),
)
_SUFFIXES: Final = (".png", ".svg")
_LONGEST_LABEL: Final = 24


def bench_command(
    files: Annotated[list[Path], typer.Argument(help="One or several .pte.", metavar="FILE...")],
    inputs: common.Inputs = None,
    shapes: common.Shapes = None,
    repeat: Annotated[int, typer.Option(min=1, help="Calls that are timed.")] = 100,
    warm_up: Annotated[int, typer.Option(min=0, help="Calls before them.")] = 10,
    plot: Annotated[
        Path | None, typer.Option("--plot", help="Draw the latencies into this .png and .svg.")
    ] = None,
    as_markdown: Annotated[
        bool, typer.Option("--markdown", help="Print a Markdown table.")
    ] = False,
    method: common.Method = "",
    cuda: common.Cuda = "",
    seed: common.Seed = 0,
    as_json: common.Json = False,
) -> None:
    """Time programs: latency percentiles, throughput, copies and waits per call, memory.

    The files run in turn, each in a new process. It times calls from Python, host inputs to host
    outputs. Only simulated GPUs count copies and waits.
    """
    from trt_et.cli.program import Request, ask_worker, choose_method

    sizes = common.parse_shapes(shapes)
    if plot:
        _check_plot(plot)
    times: dict[str, Any] = {"warm_up": warm_up, "repeat": repeat}
    requests = [
        Request("bench", str(file), method, cuda, inputs or (), sizes, seed, **times)
        for file in files
    ]
    for request in requests:  # Before the first of them takes time.
        choose_method(request, verify=False)
    answers = {request.file: ask_worker(request) for request in requests}
    if as_json:
        common.print_json(answers)
    elif as_markdown:
        typer.echo(markdown(answers))
    else:
        from rich.table import Table

        table = Table(*_HEADINGS, box=None)
        for name, answer in answers.items():
            table.add_row(*_row(name, answer))
        common.make_console().print(table)
    if plot:
        for target in draw_plot(answers, plot):
            typer.echo(f"wrote {target}", err=True)


def percentile(seconds: Sequence[float], percent: int) -> float:
    """Return the smallest time that this percentage of the calls does not exceed."""
    return sorted(seconds)[max(0, -(-len(seconds) * percent // 100) - 1)]


def _row(name: str, answer: dict[str, Any]) -> tuple[str, ...]:
    """Return the cells below the headings."""
    from trt_et.inspection.tables import size_text

    seconds = answer["seconds"]
    return (
        Path(name).name,
        *(f"{percentile(seconds, percent) * 1e3:.3f}" for percent in (50, 90, 99)),
        f"{len(seconds) / sum(seconds):.1f}",
        f"{answer['load_seconds'] * 1e3:.1f}",
        _count(answer["per_call"], "copies_"),
        _count(answer["per_call"], "synchronizations"),
        size_text(sum(answer["planned_bytes"].values())),
        size_text(answer["peak_bytes"]),
    )


def _count(counts: Mapping[str, float], name: str) -> str:
    values = [count for counter, count in counts.items() if counter.startswith(name)]
    return f"{sum(values):g}" if values else "not counted"  # Real GPUs do not count them.


def _milliseconds(value: float) -> str:
    return f"{value:,.0f} ms" if value >= 1000 else f"{value:.3g} ms"


def markdown(answers: Mapping[str, dict[str, Any]]) -> str:
    """Format the timings as a Markdown table."""
    rows = [_HEADINGS, ("---", *["---:"] * (len(_HEADINGS) - 1))]
    rows += [_row(name, answer) for name, answer in answers.items()]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _label(name: str) -> str:
    name = Path(name).name
    return name if len(name) <= _LONGEST_LABEL else f"…{name[1 - _LONGEST_LABEL :]}"


def _check_plot(path: Path) -> None:
    common.check_plot(path)
    if path.suffix not in _SUFFIXES:
        raise OptionError(f"{path} cannot be drawn: expected a name that ends in .png or .svg")


def draw_plot(answers: Mapping[str, dict[str, Any]], path: Path) -> tuple[Path, ...]:
    """Draw the distribution of each program's latencies, as PNG and as SVG.

    Args:
        answers: The answers of ``trt_et.cli.worker`` by file.
        path: The file; its suffix is replaced.

    Raises:
        OptionError: matplotlib is not installed, or it is neither a .png nor a .svg.
        RunError: Its folder does not exist.
    """
    _check_plot(path)
    from matplotlib.figure import Figure
    from matplotlib.ticker import NullFormatter, StrMethodFormatter

    times = [[second * 1e3 for second in answer["seconds"]] for answer in answers.values()]
    figure = Figure(figsize=(8, 1.2 + 0.6 * len(times)), layout="constrained")
    axes = figure.subplots()
    axes.boxplot(
        times,
        tick_labels=[_label(name) for name in answers],
        orientation="horizontal",
        whis=(1, 99),
        showfliers=False,
        widths=0.4,
        patch_artist=True,
        boxprops={"facecolor": "#cfe8a0", "edgecolor": "#5a8f00"},
        medianprops={"color": "#2f4d00", "linewidth": 2},
    )
    axes.invert_yaxis()
    axes.set_xscale("log")  # A program may take a hundred times as long as another one.
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.grid(axis="x", which="both", color="#8883", linewidth=0.6)
    axes.set_axisbelow(True)
    first = math.floor(math.log10(min(map(min, times))))
    last = math.ceil(math.log10(max(map(max, times))))
    axes.set_xlim(10**first, 10**last)
    for row, each in enumerate(times, start=1):
        axes.annotate(
            ", ".join(f"p{n} {_milliseconds(percentile(each, n))}" for n in (50, 99)),
            (1, row),
            xycoords=("axes fraction", "data"),
            xytext=(8, 0),
            textcoords="offset points",
            va="center",
        )
    axes.set_xlabel("ms per call, logarithmic (box: p25 to p75, line: p50, whiskers: p1 to p99)")
    written = tuple(path.with_suffix(suffix) for suffix in _SUFFIXES)
    for target in written:
        figure.savefig(target, dpi=150)
    return written
