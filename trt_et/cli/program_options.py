"""Options that the sub-commands that run programs share."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = ["Cuda", "Inputs", "Method", "Seed", "Shapes", "parse_shapes"]

Inputs = Annotated[
    list[str] | None,
    typer.Option(
        "--input",
        "-i",
        help="A .npy, .npz or raw file, or a number; in the order of the inputs. [default: random]",
    ),
]
Shapes = Annotated[
    list[str] | None,
    typer.Option("--shape", help="Sizes of a dynamic input: INDEX=2x3. [default: the largest]"),
]
Method = Annotated[str, typer.Option("--method", help="The method. [default: the first]")]
Cuda = Annotated[
    str,
    typer.Option("--cuda", help="real, simulated:N or auto:N. [default: TRT_ET_CUDA, else real]"),
]
Seed = Annotated[int, typer.Option("--seed", help="Of the random inputs.")]


def parse_shapes(texts: list[str] | None) -> dict[str, list[int]]:
    """``["0=2x3"]`` as ``{"0": [2, 3]}``."""
    shapes = {}
    for text in texts or ():
        index, _, sizes = text.partition("=")
        try:
            shapes[str(int(index))] = [int(size) for size in sizes.split("x") if sizes]
        except ValueError as error:
            message = f"{text!r} is not INDEX=SIZExSIZE, such as 0=2x3"
            raise typer.BadParameter(message, param_hint="--shape") from error
    return shapes
