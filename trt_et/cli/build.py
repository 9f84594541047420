"""``trt-et build``: a program with engines for this machine in place of its ONNX networks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from trt_et.cli.common import Cuda, Json, make_console, print_json


def build_command(
    file: Annotated[Path, typer.Argument(help="A .pte file with ONNX networks.", metavar="FILE")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The .pte to write.")],
    folder: Annotated[
        str, typer.Option("--engine-folder", help="Folder for built engines, or off.")
    ] = "",
    capabilities: Annotated[
        list[str] | None,
        typer.Option(
            "--compute-capability",
            help="Build for TensorRT-RTX without a GPU: a target such as 8.9, several, or all.",
        ),
    ] = None,
    cuda: Cuda = "",
    as_json: Json = False,
) -> None:
    """Build the engines of a program's ONNX networks, and write a program with them."""
    import trt_et.runtime
    from trt_et.cli.output import check_output, write_output
    from trt_et.errors import BlobError, OptionError, PluginError
    from trt_et.inspection.tables import size_text
    from trt_et.inspection.texts import engine_text
    from trt_et.runtime.explain import wrong_file
    from trt_et.runtime.networks import build_engine, build_program

    check_output(output)
    if problem := wrong_file(file):
        raise BlobError(problem)
    if capabilities is None:
        trt_et.runtime.load(cuda or None)
        if folder:
            trt_et.runtime.set_option("engine_folder", folder)
    elif folder or cuda:
        raise OptionError(
            "--compute-capability builds TensorRT-RTX engines without a GPU and without a "
            "folder; leave --engine-folder and --cuda out"
        )
    build = build_engine if capabilities is None else _for_targets(capabilities)
    try:
        program, engines = build_program(file.read_bytes(), build)
    except BlobError as error:
        raise BlobError(f"{file}: {error}") from error
    except PluginError as error:
        if "needs an NVIDIA driver" not in str(error):
            raise
        raise PluginError(
            f"{error}; run it on a machine with a GPU, or build for TensorRT-RTX, which needs "
            "no GPU, with --compute-capability 8.9"
        ) from error
    write_output(output, lambda opened: opened.write(program))
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


def _for_targets(capabilities: list[str]) -> Callable[[bytes, Mapping[str, bytes]], bytes]:
    from trt_et.engines.rtx_network import build_rtx_engine
    from trt_et.options import BuildOptions

    named = () if capabilities == ["all"] else tuple(capabilities)
    targets = BuildOptions(compute_capabilities=named).compute_capabilities
    return partial(build_rtx_engine, capabilities=targets)
