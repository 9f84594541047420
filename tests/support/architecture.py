"""Reads the structure of a Python package out of its sources: who imports whom, and how large."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Set
from graphlib import TopologicalSorter
from pathlib import Path

__all__ = [
    "cycles_checked",
    "files_by_folder",
    "folder_order",
    "imports",
    "long_files",
    "long_functions",
    "upwards",
    "vendor_imports",
]


def sources(package: Path) -> list[Path]:
    """The Python files of a package."""
    return sorted(path for path in package.rglob("*.py") if "__pycache__" not in path.parts)


def imports(package: Path) -> Iterator[tuple[str, str]]:
    """Each file with every module it imports, also within functions: ``a/b.py``, ``pkg.c.d``."""
    modules = {_module(package, path) for path in sources(package)}
    for path in sources(package):
        file = str(path.relative_to(package))
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                yield from ((file, alias.name) for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                start = node.module or ""
                if node.level:
                    raise AssertionError(f"{file}:{node.lineno}: a relative import")
                for alias in node.names:
                    full = f"{start}.{alias.name}"
                    yield file, full if full in modules else start


def _module(package: Path, path: Path) -> str:
    parts = [package.name, *path.relative_to(package).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _folder(module: str) -> str:
    """The top folder of a module of the package; for a module beside the folders, its own name."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


def _folder_imports(package: Path) -> Iterator[tuple[str, str, str]]:
    for file, module in imports(package):
        if module.split(".")[0] != package.name:
            continue
        start = _folder(_module(package, package / file))
        end = _folder(module)
        if start != end:
            yield start, end, f"{file} -> {module}"


def folder_order(package: Path) -> list[str]:
    """The folders, from those that need no other one upwards. Raises CycleError on a circle."""
    graph: dict[str, set[str]] = {}
    for start, end, _ in _folder_imports(package):
        graph.setdefault(start, set()).add(end)
    return list(TopologicalSorter(graph).static_order())


def upwards(package: Path, below: Mapping[str, Set[str]]) -> set[str]:
    """The imports of a folder that ``below`` does not allow it."""
    return {arrow for start, end, arrow in _folder_imports(package) if end not in below[start]}


def cycles_checked(package: Path) -> list[str]:
    """The modules in an order of their imports. Raises CycleError on a circle."""
    modules = {_module(package, path) for path in sources(package)}
    graph: dict[str, set[str]] = {}
    for file, module in imports(package):
        start = _module(package, package / file)
        if module in modules and module != start:
            graph.setdefault(start, set()).add(module)
    return list(TopologicalSorter(graph).static_order())


def vendor_imports(package: Path, vendor: str) -> set[str]:
    """The files that import a top-level module."""
    return {file for file, module in imports(package) if module.split(".")[0] == vendor}


def files_by_folder(package: Path) -> dict[str, int]:
    """How many Python files each folder has."""
    counts: dict[str, int] = {}
    for path in sources(package):
        if path.name != "__init__.py":
            folder = str(path.parent.relative_to(package))
            counts[folder] = counts.get(folder, 0) + 1
    return counts


def long_files(package: Path, limit: int) -> set[str]:
    """The files of more than ``limit`` lines."""
    return {
        str(path.relative_to(package))
        for path in sources(package)
        if len(path.read_text().splitlines()) > limit
    }


def long_functions(package: Path, limit: int) -> set[str]:
    """The functions whose body, without docstring and signature, has more than ``limit`` lines."""
    found = set()
    for path in sources(package):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                assert node.end_lineno is not None
                if node.end_lineno - _start(node) + 1 > limit:
                    found.add(f"{path.relative_to(package)}: {node.name}")
    return found


def _start(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Its first line; where a docstring follows the signature, the first line after it."""
    body = function.body
    if ast.get_docstring(function) is not None and len(body) > 1:
        return body[1].lineno
    return function.lineno
