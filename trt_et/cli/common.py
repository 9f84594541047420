"""Options, output, errors and the exit status of the commands."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from difflib import get_close_matches
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from trt_et.cli.output import check_output
from trt_et.errors import OptionError, TrtEtError

if TYPE_CHECKING:
    from rich.console import Console

FAILED: Final = 1
WRONG_USAGE: Final = 2

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Model = Annotated[
    str,
    typer.Argument(
        help="A function that returns (module, example_inputs[, dynamic_shapes]).",
        metavar="MODULE:CALLABLE",
    ),
]
Inputs = Annotated[
    list[str] | None,
    typer.Option(
        "--input",
        "-i",
        help="A .npy, .npz or raw file, or a number; in the order of the inputs. Arrays of a .npz "
        "may have the inputs' names instead. [default: random]",
    ),
]
Shapes = Annotated[
    list[str] | None,
    typer.Option("--shape", help="Sizes of a dynamic input: INDEX=2x3. [default: the largest]"),
]
Method = Annotated[str, typer.Option("--method", help="The method. [default: the first]")]
Cuda = Annotated[
    str,
    typer.Option(
        "--cuda",
        help="real, simulated:N or auto:N. [default: TRT_ET_CUDA, else real; without a GPU, "
        "simulated if FILE has reference engines only]",
    ),
]
Data = Annotated[
    Path | None,
    typer.Option(
        "--data",
        help="The file with its engines (.ptd). [default: the one that FILE names, beside FILE]",
    ),
]
Seed = Annotated[int, typer.Option("--seed", help="Of the random inputs.")]


def parse_shapes(texts: list[str] | None) -> dict[str, list[int]]:
    """Parse ``["0=2x3"]`` into ``{"0": [2, 3]}``."""
    shapes = {}
    for text in texts or ():
        index, _, sizes = text.partition("=")
        try:
            shapes[str(int(index))] = [int(size) for size in sizes.split("x") if sizes]
        except ValueError as error:
            message = f"{text!r} is not INDEX=SIZExSIZE, such as 0=2x3"
            raise typer.BadParameter(message, param_hint="--shape") from error
    return shapes


def make_console() -> Console:
    """Return standard output. Lines wrap on a terminal only: ``| grep`` sees whole lines.

    Characters that the locale's encoding lacks, such as in an ASCII locale, are escaped.
    """
    from rich.console import Console

    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    width = None if sys.stdout.isatty() else 100_000
    return Console(width=width, soft_wrap=True, highlight=False, markup=False, emoji=False)


def print_json(document: Any) -> None:  # noqa: ANN401
    """Print a JSON document on standard output."""
    typer.echo(json.dumps(document, indent=2, default=str))


def check_model(name: str) -> None:
    """Check ``MODULE:CALLABLE``, and that its file exists, without an import.

    Raises:
        OptionError: It has another form, or there is no such file.
    """
    where, _, attribute = name.rpartition(":")
    if not where or not attribute:
        raise OptionError(f"{name!r} is not MODULE:CALLABLE, such as model.py:make")
    file = Path(where)
    if file.suffix == ".py" and not file.is_file():
        files = [path.name for path in file.parent.glob("*.py")]
        near = [str(file.with_name(close)) for close in get_close_matches(file.name, files)]
        advice = f"; did you mean {' or '.join(near)}?" if near else ""
        raise OptionError(f"there is no file {where}{advice}")


def check_plot(path: Path) -> None:
    """Check that a plot can be drawn into a file.

    Raises:
        OptionError: matplotlib is not installed, or does not know the suffix.
        RunError: The folder of the file does not exist, or it is a folder.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
    except ImportError as error:
        raise OptionError("plots need matplotlib: pip install matplotlib") from error
    if path.suffix.lower().removeprefix(".") not in FigureCanvasAgg.get_supported_filetypes():
        raise OptionError(f"{path} cannot be drawn: expected a name that ends in .png or .svg")
    check_output(path)


@contextlib.contextmanager
def errors_on_one_line() -> Iterator[None]:
    """Turn the errors that users can meet into one line and an exit status."""
    try:
        yield
    except BrokenPipeError:  # Typer ends silently if the reader of a pipe has gone.
        raise
    except (TrtEtError, OSError) as error:
        message = str(error)
        if isinstance(error, OSError) and error.filename:
            message = f"{error.filename}: {error.strerror}"
        typer.echo("trt-et: " + " ".join(message.split()), err=True)
        raise typer.Exit(WRONG_USAGE if isinstance(error, OptionError) else FAILED) from error
