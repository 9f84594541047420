"""The command ``trt-et``: what is in a file, what is in the engine cache."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.console import Console
from rich.table import Table

from trt_et.cache.engine_cache import EngineCache, choose_cache
from trt_et.engine_info import EngineInfo
from trt_et.errors import BlobError, TrtEtError

if TYPE_CHECKING:
    from trt_et.inspection import DelegateInfo, MethodInfo

__all__ = ["app", "main"]

app: Final = typer.Typer(
    help="TensorRT as a normal ExecuTorch backend.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
cache_app: Final = typer.Typer(help="The engine cache.", no_args_is_help=True)
app.add_typer(cache_app, name="cache")

_Folder = Annotated[
    Path | None,
    typer.Option("--cache", help="The cache's folder. [default: TRT_ET_CACHE, or the user's]"),
]
_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")


def main() -> None:
    """Run the command; errors are told in one line, not as a traceback."""
    app()


@cache_app.command("path")
def cache_path(folder: _Folder = None) -> None:
    """Print the cache's folder."""
    Console(soft_wrap=True).out(str(_cache(folder).folder), highlight=False)


@cache_app.command("list")
def cache_list(folder: _Folder = None) -> None:
    """List the engines in the cache, the one that was used last first."""
    cache = _cache(folder)
    table = Table("key", "size", "used", "builder", "for", "inputs and outputs", box=None)
    entries = cache.entries()
    for entry in entries:
        try:
            info = entry.info()
            facts = [f"{info.builder} {info.library_version}", _targets(info)]
            facts.append(", ".join(f"{b.name} {b.dtype}{list(b.shape)}" for b in info.bindings))
        except (BlobError, OSError) as error:
            facts = [f"unreadable: {error}", "", ""]
        used = time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.used / 1e9))
        table.add_row(entry.key[:12], _bytes(entry.size), used, *facts)
    console = Console(soft_wrap=True)
    if entries:
        console.print(table)
    total = sum(entry.size for entry in entries)
    console.print(
        f"{len(entries)} engines, {_bytes(total)} of at most {_bytes(cache.max_bytes)}, "
        f"in {cache.folder}",
        highlight=False,
    )


@cache_app.command("verify")
def cache_verify(folder: _Folder = None) -> None:
    """Check every engine in the cache and remove what is corrupt; exit with 1 if anything was."""
    cache = _cache(folder)
    console = Console(soft_wrap=True)
    with _told():
        bad = cache.verify()
    for entry, reason in bad:
        console.print(f"removed {entry.key[:12]}: {reason}", highlight=False, markup=False)
    console.print(f"{len(cache.entries())} engines are whole, {len(bad)} were not", highlight=False)
    if bad:
        raise typer.Exit(1)


@cache_app.command("clear")
def cache_clear(folder: _Folder = None) -> None:
    """Remove everything from the cache."""
    with _told():
        freed = _cache(folder).clear()
    Console(soft_wrap=True).print(f"removed {_bytes(freed)}", highlight=False)


@app.command("inspect")
def inspect_file(
    file: Annotated[Path, typer.Argument(help="A .pte file.", metavar="FILE.pte")],
) -> None:
    """Say what a .pte holds: methods, engines, GPUs, what stays on the CPU."""
    with _told():
        try:
            data = _mapped(file)
        except OSError as error:
            raise BlobError(f"{file} cannot be read: {error.strerror}") from error
        if data[4:6] != b"ET":
            raise BlobError(f"{file} is no ExecuTorch program (.pte)")
        from trt_et.inspection import inspect_program

        methods = inspect_program(data)
    console = Console(soft_wrap=True)
    for method in methods:
        _show(console, method)


def _mapped(file: Path) -> mmap | bytes:
    """A file's bytes; engines may be larger than memory."""
    with file.open("rb") as opened:
        empty = not os.fstat(opened.fileno()).st_size
        return b"" if empty else mmap(opened.fileno(), 0, access=ACCESS_READ)


def _show(console: Console, method: MethodInfo) -> None:
    console.print(f"method {method.name}", style="bold", highlight=False)
    for index, delegate in enumerate(method.delegates):
        _show_delegate(console, index, delegate)
    operators = ", ".join(method.cpu_operators) or "nothing"
    console.print(f"  on the CPU: {operators}", highlight=False, markup=False)
    for use in method.devices:
        console.print(
            f"  {use.device}: {use.tensors} tensors, {_bytes(use.planned_bytes)} planned",
            highlight=False,
        )


def _show_delegate(console: Console, index: int, delegate: DelegateInfo) -> None:
    line = f"  delegate {index}: {delegate.backend_id}, {_bytes(delegate.size)}"
    if delegate.engine is not None:
        info = delegate.engine
        line += f", engine of {info.builder or 'a foreign builder'} {info.library_version}"
        line += f" for {_targets(info)}"
    elif delegate.problem:
        line += f", unreadable: {delegate.problem}"
    console.print(line, highlight=False, markup=False)
    places = {a.output: a.input for a in delegate.engine.aliases} if delegate.engine else {}
    for binding in delegate.engine.bindings if delegate.engine else ():
        kind = "in " if binding.is_input else "out"
        text = f"    {kind} {binding.name}: {binding.dtype} {list(binding.shape)}"
        if binding.is_dynamic:
            ranges = zip(binding.min_shape or (), binding.max_shape or (), strict=True)
            text += " (" + " x ".join(f"{low}..{high}" for low, high in ranges) + ")"
        if binding.name in places:
            text += f", written into {places[binding.name]}"
        console.print(text, highlight=False, markup=False)


def _targets(info: EngineInfo) -> str:
    device = "no GPU said" if info.device_id is None else f"cuda:{info.device_id}"
    facts = [device, info.gpu_name, ", ".join(info.compute_capabilities)]
    return ", ".join(fact for fact in facts if fact)


def _cache(folder: Path | None) -> EngineCache:
    with _told():
        return (EngineCache(folder) if folder else choose_cache(None)) or EngineCache()


@contextlib.contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except (TrtEtError, OSError) as error:
        Console(stderr=True, soft_wrap=True).print(f"trt-et: {error}", markup=False)
        raise typer.Exit(1) from error


def _bytes(count: int) -> str:
    size, unit = float(count), 0
    while size >= 1024 and unit < len(_UNITS) - 1:
        size, unit = size / 1024, unit + 1
    return f"{size:.1f} {_UNITS[unit]}" if unit else f"{count} B"


if __name__ == "__main__":
    main()
