"""The command ``trt-et``, one file per sub-command.

A sub-command imports its tools when it runs: ``trt-et --help`` imports neither torch nor
ExecuTorch. The exit status is 0 for success, 1 for a failure or a damaged file, and 2 for wrong
usage.
"""

from __future__ import annotations

import logging
import os
import sys
import warnings
from io import FileIO, TextIOWrapper
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

import trt_et
from trt_et.cli import bench, build, cache, compare, doctor, export, inspect, run
from trt_et.cli.common import errors_on_one_line

__all__ = ["app", "main"]


class _Commands(TyperGroup):
    def make_context(self, *arguments: Any, **more: Any) -> Any:  # noqa: ANN401
        with errors_on_one_line():  # Of --version and --help.
            return super().make_context(*arguments, **more)

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401
        with errors_on_one_line():
            return super().invoke(ctx)


app: Final = typer.Typer(
    name="trt-et",
    cls=_Commands,
    help="TensorRT as a normal ExecuTorch backend.",
    epilog="Exit status: 0 done, 1 failed or a damaged file, 2 wrong usage.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"trt-et {trt_et.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """TensorRT as a normal ExecuTorch backend."""


app.command("doctor")(doctor.doctor_command)
app.command("export")(export.export_command)
app.command("build")(build.build_command)
app.command("inspect")(inspect.inspect_command)
app.command("run")(run.run_command)
app.command("compare")(compare.compare_command)
app.command("bench")(bench.bench_command)
app.add_typer(cache.app, name="cache")


def _keep_standard_streams() -> None:
    """Open those that are closed: a file that is opened later would get what is printed."""
    for stream in range(3):
        try:
            os.fstat(stream)
        except OSError:
            os.open(os.devnull, os.O_RDONLY)
    if sys.stdout is None:
        # Each write fails, and nothing is kept for the end of the process.
        sys.stdout = TextIOWrapper(FileIO(1, "w", closefd=False), write_through=True)


def main() -> None:
    """Run the command."""
    _keep_standard_streams()
    # ExecuTorch's call of torch; nothing that users of this command can change.
    warnings.filterwarnings("ignore", "`isinstance.treespec, LeafSpec", FutureWarning)
    # Lines that imports of torch and torchao log.
    for name in ("torchao", "torch.utils._pytree", "torch._library", "torch._opaque_base"):
        logging.getLogger(name).setLevel(logging.ERROR)
    app()
