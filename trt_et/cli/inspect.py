"""``trt-et inspect``: show the contents of a ``.pte``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trt_et.cli.common import (
    FAILED,
    WRONG_USAGE,
    Json,
    errors_on_one_line,
    fail,
    make_console,
    print_json,
    size_text,
)

if TYPE_CHECKING:
    from trt_et.blob.model import Binding, EngineInfo
    from trt_et.inspection import DelegateInfo, MethodInfo, ProgramInfo, TensorValue

__all__ = ["binding_text", "differences", "inspect_command", "targets_text", "to_document"]


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
    html: Annotated[
        Path | None,
        typer.Option("--html", metavar="OUT", help="Write one HTML page with the graph to OUT."),
    ] = None,
    verify: Annotated[
        bool, typer.Option("--verify/--no-verify", help="Check the engines' checksums.")
    ] = True,
    as_json: Json = False,
) -> None:
    """Show the contents of a .pte: methods, delegates, engines, devices, memory, copies."""
    from trt_et.inspection import inspect_file

    with errors_on_one_line():
        program = inspect_file(file, verify=verify)
        if diff is not None:
            other = inspect_file(diff, verify=verify)
            lines = list(differences(to_document(program), to_document(other)))
            if as_json:
                print_json({"differences": lines})
            else:
                typer.echo("\n".join(lines) or "no difference")
            raise typer.Exit(FAILED if lines else 0)
        if extract is not None:
            _extract(program, method, delegate, extract)
        if html is not None:
            from trt_et.cli.html import html_page

            page = html_page(program, to_document(program), file.name)
            html.write_text(page, encoding="utf-8")
    if as_json:
        print_json(to_document(program))
    elif extract is None and html is None:
        console = make_console()
        for line in _describe(program):
            style = "bold" if line.startswith("method ") else "red" if "DAMAGED" in line else None
            console.print(line, style=style)
    if program.problems:
        raise fail(f"{file} is damaged: " + "; ".join(program.problems))


def _extract(program: ProgramInfo, name: str | None, index: int, out: Path) -> None:
    from trt_et.blob.codec import decode_blob

    methods = {method.name: method for method in program.methods}
    name = name or program.methods[0].name
    if name not in methods:
        raise fail(f"there is no method {name!r}; there are {', '.join(methods)}", WRONG_USAGE)
    delegates = methods[name].delegates
    if index >= len(delegates):
        raise fail(
            f"method {name!r} has {len(delegates)} delegates; there is no number {index}",
            WRONG_USAGE,
        )
    chosen = delegates[index]
    if chosen.engine is None or chosen.problem:
        reason = chosen.problem or f"it is a delegate of {chosen.backend_id}"
        raise fail(f"delegate {index} of method {name!r} has no engine to extract: {reason}")
    with out.open("wb") as opened:
        opened.write(decode_blob(chosen.blob, verify=False).engine)
    typer.echo(f"wrote {chosen.engine_size} bytes to {out}", err=True)


def to_document(program: ProgramInfo) -> dict[str, Any]:
    """Convert a program's facts to types that JSON has, without the blobs' bytes."""
    return {
        "bytes": program.size,
        "constant_bytes": program.constant_bytes,
        "named_data": dict(program.named_data),
        "methods": {
            method.name: {
                "inputs": [asdict(tensor) if tensor else {} for tensor in method.inputs],
                "outputs": [asdict(tensor) if tensor else {} for tensor in method.outputs],
                "delegates": [_delegate_document(delegate) for delegate in method.delegates],
                "cpu_operators": method.operator_calls,
                "devices": {use.device: asdict(use) for use in method.devices},
                "copies": [asdict(copy) for copy in method.copies],
            }
            for method in program.methods
        },
    }


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
        "operators": dict(Counter(delegate.operators)),
        "problem": delegate.problem,
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


def targets_text(info: EngineInfo) -> str:
    """Name the GPUs that an engine is for."""
    device = "no GPU recorded" if info.device_id is None else f"cuda:{info.device_id}"
    facts = [device, info.gpu_name, ", ".join(info.compute_capabilities)]
    return ", ".join(fact for fact in facts if fact)


def binding_text(binding: Binding) -> str:
    """Format a binding's name, type and shape."""
    return f"{binding.name} {binding.dtype}{list(binding.shape)}"


def _describe(program: ProgramInfo) -> Iterator[str]:
    for method in program.methods:
        yield from _method_lines(method)
    if program.constant_bytes:
        yield f"constants of CPU kernels: {size_text(program.constant_bytes)}"
    if program.named_data:
        size = sum(size for _, size in program.named_data)
        yield f"named data of delegates: {len(program.named_data)} entries, {size_text(size)}"


def _method_lines(method: MethodInfo) -> Iterator[str]:
    yield f"method {method.name}"
    for kind, tensors in (("input", method.inputs), ("output", method.outputs)):
        for index, tensor in enumerate(tensors):
            yield f"  {kind} {index}: {_tensor_text(tensor)}"
    for index, delegate in enumerate(method.delegates):
        yield from _delegate_lines(index, delegate)
    yield f"  on the CPU: {_counted(method.operator_calls) or 'nothing'}"
    for use in method.devices:
        yield f"  {use.device}: {use.tensors} tensors, {size_text(use.planned_bytes)} planned"
    for direction, name in (("h2d", "to the GPU"), ("d2h", "to the host")):
        sizes = [copy.nbytes for copy in method.copies if copy.direction == direction]
        if sizes:
            yield f"  copies {name} in each call: {len(sizes)}, {size_text(sum(sizes))}"


def _tensor_text(tensor: TensorValue | None) -> str:
    if tensor is None:
        return "no tensor"
    most = "at most " if tensor.is_dynamic else ""
    return f"{tensor.dtype} {most}{list(tensor.sizes)} on {tensor.device}"


def _delegate_lines(index: int, delegate: DelegateInfo) -> Iterator[str]:
    line = f"  delegate {index}: {delegate.backend_id}, {size_text(delegate.size)}"
    info = delegate.engine
    if info is not None:
        builder = f"{info.builder or 'an unknown builder'} {info.library_version}".rstrip()
        line += f", engine of {builder} for {targets_text(info)}"
        line += f", computes in {info.precision}" if info.precision else ""
    if delegate.problem:
        line += f", DAMAGED: {delegate.problem}"
    yield line
    if info is not None:
        aliases = {alias.output: f", written into {alias.input}" for alias in info.aliases}
        for binding in info.bindings:
            yield f"    {_binding_line(binding)}{aliases.get(binding.name, '')}"
    if delegate.operators:
        yield f"    operators: {_counted(Counter(delegate.operators))}"


def _binding_line(binding: Binding) -> str:
    kind = "in " if binding.is_input else "out"
    text = f"{kind} {binding.name}: {binding.dtype} {list(binding.shape)}"
    if binding.is_dynamic:
        ranges = zip(binding.min_shape or (), binding.max_shape or (), strict=False)
        text += " (" + " x ".join(f"{low}..{high}" for low, high in ranges) + ")"
    return text


def _counted(counts: dict[str, int]) -> str:
    return ", ".join(name if count == 1 else f"{count} x {name}" for name, count in counts.items())
