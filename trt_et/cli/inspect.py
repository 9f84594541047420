"""``trt-et inspect``: show the contents of a ``.pte``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trt_et.cli.common import FAILED, Data, Json, make_console, print_json
from trt_et.cli.output import check_output, write_output, write_page
from trt_et.errors import OptionError, RunError

if TYPE_CHECKING:
    from rich.console import Console

    from trt_et.inspection import DelegateInfo, EngineKernels, MethodInfo, ProgramInfo


def inspect_command(
    file: Annotated[Path, typer.Argument(help="A .pte file.", metavar="FILE")],
    diff: Annotated[
        Path | None,
        typer.Option("--diff", metavar="OTHER", help="Print how OTHER differs; exit with 1 if so."),
    ] = None,
    extract: Annotated[
        Path | None,
        typer.Option("--extract-engine", metavar="OUT", help="Write an engine's bytes to OUT."),
    ] = None,
    delegate: Annotated[
        int, typer.Option("--delegate", min=0, help="The delegate of --extract-engine.")
    ] = 0,
    method: Annotated[
        str | None,
        typer.Option("--method", help="The method of --extract-engine. [default: the first]"),
    ] = None,
    kernels: Annotated[
        bool,
        typer.Option("--kernels", help="Also show what each TensorRT-RTX engine launches."),
    ] = False,
    html: Annotated[
        Path | None,
        typer.Option("--html", metavar="OUT", help="Write one HTML page with the graph to OUT."),
    ] = None,
    data: Data = None,
    verify: Annotated[
        bool, typer.Option("--verify/--no-verify", help="Check the engines' checksums.")
    ] = True,
    as_json: Json = False,
) -> None:
    """Show the contents of a .pte: methods, delegates, engines, devices, memory, copies."""
    from trt_et.inspection import inspect_file
    from trt_et.inspection.kernel_differences import kernel_differences
    from trt_et.inspection.tables import size_text

    for output in filter(None, (extract, html)):
        check_output(output)
    program = inspect_file(file, verify=verify, data=data)
    if diff is not None:
        other = inspect_file(diff, verify=verify)
        lines = [
            *differences(to_document(program), to_document(other)),
            *kernel_differences(program, other),
        ]
        if as_json:
            print_json({"differences": lines})
        else:
            typer.echo("\n".join(lines) or "no difference")
        raise typer.Exit(FAILED if lines else 0)
    if extract is not None:
        _extract(program, method, delegate, extract)
    if html is not None:
        from trt_et.inspection.draw_methods import pictures_of
        from trt_et.inspection.page import html_page

        write_page(html, html_page(pictures_of(program), file.name))
    if as_json:
        print_json(to_document(program, kernels=kernels))
    elif extract is None and html is None:
        console = make_console()
        console.print(f"{file.name}: {size_text(program.size)}", style="bold")
        console.print(program)
        if kernels:
            _print_kernels(program, console)
    if program.problems:
        raise RunError(f"{file} is damaged: {'; '.join(program.problems)}")


def _extract(program: ProgramInfo, name: str | None, index: int, out: Path) -> None:
    from trt_et.blob.codec import decode_blob

    method = program.method(name or "")
    name, delegates = method.name, method.delegates
    if index >= len(delegates):
        raise OptionError(
            f"method {name!r} has no delegate {index}; it has {len(delegates)}, from number 0"
        )
    chosen = delegates[index]
    missing = chosen.engine is not None and chosen.engine.engine_key and not chosen.engine_size
    if chosen.engine is None or chosen.problem or missing:
        reason = chosen.problem or f"it is a delegate of {chosen.backend_id}"
        if missing:
            reason = "it is in a .ptd file, which is not there: name it with --data"
        raise RunError(f"delegate {index} of method {name!r} has no engine to extract: {reason}")
    engine = decode_blob(chosen.blob, verify=False).engine
    write_output(out, lambda opened: opened.write(engine))
    typer.echo(f"wrote {chosen.engine_size} bytes to {out}", err=True)


def _print_kernels(program: ProgramInfo, console: Console) -> None:
    for method in program.methods:
        where = f" of method {method.name}" if len(program.methods) > 1 else ""
        for index, delegate in enumerate(method.delegates):
            if delegate.kernels:
                console.print(delegate.kernels)
            known = delegate.kernels or "kernels are not known"
            console.print(f"delegate {index}{where}, {delegate.title}: {known}")


def to_document(program: ProgramInfo, *, kernels: bool = False) -> dict[str, Any]:
    """Convert a program's facts to types that JSON has, without the blobs' bytes."""
    return {
        "bytes": program.size,
        "constant_bytes": program.constant_bytes,
        "named_data": dict(program.named_data),
        "methods": {
            method.name: {
                "inputs": _tensor_documents(method, method.input_values),
                "outputs": _tensor_documents(method, method.output_values),
                "delegates": [
                    {
                        **_delegate_document(delegate),
                        **({"kernels": _kernels_document(delegate.kernels)} if kernels else {}),
                    }
                    for delegate in method.delegates
                ],
                "cpu_operators": method.operator_calls,
                "devices": {use.device: asdict(use) for use in method.devices},
                "copies": [asdict(copy) for copy in method.copies],
            }
            for method in program.methods
        },
    }


def _tensor_documents(method: MethodInfo, values: tuple[int, ...]) -> list[dict[str, Any]]:
    names = method.value_names
    return [
        {"name": names.get(value, ""), **asdict(tensor)} if tensor else {}
        for value, tensor in ((value, method.values[value]) for value in values)
    ]


def _delegate_document(delegate: DelegateInfo) -> dict[str, Any]:
    return {
        "backend": delegate.backend_id,
        "bytes": delegate.size,
        "offset": delegate.offset,
        "compile_specs": {
            key: value.decode("utf-8", "backslashreplace") for key, value in delegate.compile_specs
        },
        "engine_bytes": delegate.engine_size,
        "engine": asdict(delegate.engine) if delegate.engine else None,
        "operators": delegate.operator_counts,
        "problem": delegate.problem,
    }


def _kernels_document(kernels: EngineKernels | None) -> dict[str, Any] | None:
    if kernels is None:
        return None
    totals = ("traffic", "constant_bytes", "bytes_moved")
    return {"count": len(kernels.kernels), **asdict(kernels)} | {
        name: getattr(kernels, name) for name in totals
    }


def differences(first: Any, second: Any, path: str = "") -> Iterator[str]:  # noqa: ANN401
    """Compare two documents: one line per value that differs, with its path."""
    if isinstance(first, dict) and isinstance(second, dict):
        for key in dict.fromkeys([*first, *second]):
            inner = f"{path}.{key}" if path else str(key)
            if key not in second:
                yield f"{inner}: only in the first"
            elif key not in first:
                yield f"{inner}: only in the second"
            else:
                yield from differences(first[key], second[key], inner)
    elif all(isinstance(x, list) and all(isinstance(i, dict) for i in x) for x in (first, second)):
        if len(first) != len(second):
            yield f"{path}: {len(first)} entries -> {len(second)} entries"
        for index, (one, other) in enumerate(zip(first, second, strict=False)):
            yield from differences(one, other, f"{path}[{index}]")
    elif first != second:
        yield f"{path}: {first} -> {second}"
