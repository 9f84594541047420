"""``trt-et build``: a program with engines for this machine in place of its ONNX networks."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from trt_et.cli.common import Cuda, Json, errors_on_one_line, make_console, print_json

__all__ = ["build_command"]


def build_command(
    file: Annotated[Path, typer.Argument(help="A .pte file with ONNX networks.", metavar="FILE")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The .pte to write.")],
    build_with: Annotated[
        str, typer.Option("--with", help="tensorrt or tensorrt_rtx. [default: the first found]")
    ] = "",
    folder: Annotated[
        str, typer.Option("--engine-folder", help="Folder for built engines, or off.")
    ] = "",
    cuda: Cuda = "",
    as_json: Json = False,
) -> None:
    """Build the engines of a program's ONNX networks here, and write a program with them."""
    import trt_et.runtime
    from trt_et.errors import BlobError
    from trt_et.inspection.texts import engine_text
    from trt_et.runtime.networks import build_program
    from trt_et.views.tables import size_text

    for name, value in (("BUILD_WITH", build_with), ("ENGINE_FOLDER", folder)):
        if value:
            os.environ[f"TRT_ET_{name}"] = value
    with errors_on_one_line():
        trt_et.runtime.load(cuda or None)
        try:
            program, engines = build_program(file.read_bytes())
            output.write_bytes(program)
        except OSError as error:
            raise BlobError(f"{error.filename}: {error.strerror}") from error
    rows = [
        {
            "method": engine.method,
            "bytes": len(engine.blob),
            "builder": engine.info.builder,
            "library_version": engine.info.library_version,
            "gpu_name": engine.info.gpu_name,
        }
        for engine in engines
    ]
    if as_json:
        print_json({"output": str(output), "bytes": len(program), "engines": rows})
        return
    console = make_console()
    for engine in engines:
        text = engine_text(engine.info)
        console.print(f"{engine.method}: {text}, {size_text(len(engine.blob))}")
    console.print(f"wrote {output} ({size_text(len(program))})")
