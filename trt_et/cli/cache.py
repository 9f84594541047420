"""``trt-et cache``: the engine cache."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from trt_et.cli.common import FAILED, Json, make_console, print_json
from trt_et.errors import BlobError

if TYPE_CHECKING:
    from trt_et.engines.cache import CacheEntry, EngineCache

__all__ = ["app"]

app: Final = typer.Typer(help="The engine cache.", no_args_is_help=True)

_Folder = Annotated[
    Path | None,
    typer.Option("--cache", help="The cache's folder. [default: TRT_ET_CACHE, or the user's]"),
]


@app.command("path")
def path_command(folder: _Folder = None, as_json: Json = False) -> None:
    """Print the cache's folder."""
    cache = _open(folder)
    print_json({"folder": str(cache.folder)}) if as_json else typer.echo(cache.folder)


@app.command("list")
def list_command(folder: _Folder = None, as_json: Json = False) -> None:
    """List the engines in the cache, the last used first."""
    cache = _open(folder)
    entries = cache.entries()
    rows = [_row(entry) for entry in entries]
    total = sum(entry.size for entry in entries)
    if as_json:
        facts = {"folder": str(cache.folder), "bytes": total, "max_bytes": cache.max_bytes}
        print_json({**facts, "engines": rows})
        return
    from rich.table import Table

    from trt_et.inspection.tables import size_text

    table = Table("key", "size", "used", "builder", "for", "inputs and outputs", box=None)
    for row in rows:
        cells = [row.get("problem") or row["builder"], row["targets"], row["bindings"]]
        table.add_row(row["key"][:12], size_text(row["bytes"]), row["used"], *cells)
    console = make_console()
    if entries:
        console.print(table)
    console.print(
        f"{len(entries)} engines, {size_text(total)} of at most "
        f"{size_text(cache.max_bytes)}, in {cache.folder}"
        + ("" if cache.folder.is_dir() else ", which does not exist")
    )


@app.command("verify")
def verify_command(folder: _Folder = None, as_json: Json = False) -> None:
    """Check every engine in the cache and remove the corrupt ones; exit with 1 if there was one."""
    cache = _open(folder)
    bad = cache.verify()
    intact = len(cache.entries())
    if as_json:
        removed = [{"key": entry.key, "problem": reason} for entry, reason in bad]
        print_json({"intact": intact, "removed": removed})
    else:
        for entry, reason in bad:
            typer.echo(f"removed {entry.key[:12]}: {reason}")
        typer.echo(f"{intact} engines are intact, {len(bad)} were not")
    if bad:
        raise typer.Exit(FAILED)


@app.command("clear")
def clear_command(
    folder: _Folder = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: Json = False,
) -> None:
    """Remove every engine from the cache; asks first if there is one."""
    from trt_et.inspection.tables import size_text

    cache = _open(folder)
    entries = cache.entries()
    if entries and not yes:
        size = size_text(sum(entry.size for entry in entries))
        question = f"Remove {len(entries)} engines ({size}) from {cache.folder}?"
        typer.confirm(question, abort=True, err=True)
    freed = cache.clear()
    print_json({"removed_bytes": freed}) if as_json else typer.echo(f"removed {size_text(freed)}")


def _row(entry: CacheEntry) -> dict[str, Any]:
    used = time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.used / 1e9))
    row: dict[str, Any] = {"key": entry.key, "bytes": entry.size, "used": used}
    row |= {"builder": "", "targets": "", "bindings": ""}
    try:
        info = entry.info()
    except (BlobError, OSError) as error:
        return row | {"problem": f"unreadable: {error}"}
    from trt_et.inspection.texts import binding_sizes, engine_text, gpu_text

    bindings = ", ".join(f"{b.name} {b.dtype}{binding_sizes(b)}" for b in info.bindings)
    return row | {"builder": engine_text(info), "targets": gpu_text(info), "bindings": bindings}


def _open(folder: Path | None) -> EngineCache:
    from trt_et.engines.cache import EngineCache, choose_cache

    return (EngineCache(folder) if folder else choose_cache(None)) or EngineCache()
