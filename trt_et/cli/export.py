"""``trt-et export``: export a model to a ``.pte``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trt_et.cli.common import Json, Model, check_model, make_console, print_json
from trt_et.cli.output import write_page
from trt_et.cli.steps import Steps
from trt_et.engines.libraries import check_builder_name
from trt_et.options import BuildOptions


def export_command(
    model: Model,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The .pte to write, unless --explain.")
    ] = None,
    builder: Annotated[
        str, typer.Option(help="auto, tensorrt, tensorrt_rtx, onnx or reference.")
    ] = "auto",
    device: Annotated[str, typer.Option(help="The GPU of the engines, such as cuda:1.")] = "cuda:0",
    capabilities: Annotated[
        list[str] | None,
        typer.Option("--compute-capability", help="A target such as 8.6; several are possible."),
    ] = None,
    min_block_size: Annotated[
        int, typer.Option(min=1, help="Smallest number of operators worth an engine.")
    ] = 1,
    excluded_ops: Annotated[
        list[str] | None,
        typer.Option("--exclude", help="An operator to leave to the CPU, such as aten.mul."),
    ] = None,
    full_graph: Annotated[
        bool, typer.Option("--full-graph", help="Fail if an operator stays on the CPU.")
    ] = False,
    precision: Annotated[
        str | None,
        typer.Option(help="float16 or bfloat16: what engines compute in. [default: the model's]"),
    ] = None,
    float32_ops: Annotated[
        list[str] | None,
        typer.Option("--float32", help="With --precision: an operator or node to keep in float32."),
    ] = None,
    calibration: Annotated[
        list[Path] | None,
        typer.Option(
            help="With --precision: a .npz with the inputs of one call, or a folder of them; "
            "operators whose values float16 may not hold keep float32."
        ),
    ] = None,
    optimization_level: Annotated[
        int | None, typer.Option(min=0, max=5, help="TensorRT's builder optimization level.")
    ] = None,
    external_engines: Annotated[
        str | None,
        typer.Option(
            "--external-engines",
            metavar="NAME",
            help="Write the engines into NAME.ptd beside the .pte.",
        ),
    ] = None,
    cache: Annotated[
        Path | None, typer.Option(help="Folder of the engine cache. [default: TRT_ET_CACHE]")
    ] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Print what would be done; build and write nothing.")
    ] = False,
    html: Annotated[
        Path | None,
        typer.Option("--html", metavar="OUT", help="Write a page with the partitions to OUT."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Export a model: torch.export, partitions, engines, one .pte."""
    if output is None and not explain:
        raise typer.BadParameter("name the .pte to write", param_hint="--output")
    # Before the imports, which take seconds.
    check_model(model)
    check_builder_name(builder)
    BuildOptions(tuple(capabilities or ()), precision=precision)
    steps = Steps(shown=not as_json)
    with steps.step("import torch and ExecuTorch"):
        from trt_et.cli.inputs import read_calibration
        from trt_et.cli.models import explain_model, export_model
        from trt_et.cli.output import check_output
        from trt_et.partitioner import TensorRTPartitioner
    if html is not None:
        check_output(html)
    partitioner = TensorRTPartitioner(
        builder=builder,
        device=device,
        compute_capabilities=capabilities,
        min_block_size=min_block_size,
        excluded_ops=excluded_ops or (),
        precision=precision,
        float32_ops=float32_ops or (),
        calibration=read_calibration(calibration, model) if calibration else None,
        full_graph=full_graph,
        optimization_level=optimization_level,
        external_engines=external_engines,
        cache=cache,
        progress=steps.show_build,
    )
    if output is None or explain:
        report = explain_model(model, partitioner, steps)
    else:
        report = export_model(
            model, partitioner, output, steps, external_engines=external_engines is not None
        )
    if html is not None and partitioner.report is not None:
        write_page(html, partitioner.report.to_html(model))
    if as_json:
        print_json(report)
        return
    console = make_console()
    console.print(partitioner.report)
    if not explain:
        engines = f"{report['engines']} engine{'' if report['engines'] == 1 else 's'}"
        console.print(f"wrote {output}: {engines}, {report['bytes']:,} bytes")
        for data in report["data"]:
            console.print(f"wrote {data}: {Path(data).stat().st_size:,} bytes")
