"""How tests/ is laid out: folders of tests that mirror trt_et/, and helpers in tests/support/."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

TESTS = Path(__file__).parent
SUPPORT = TESTS / "support"
FILES_IN_A_FOLDER = 20
NOT_MIRRORED = {"runtime", "export", "zoo", "coverage", "network_evaluator", "gpu"}
# What make and people run, beside the C++ sources that it belongs to.
COMMANDS = {Path("runtime/native/make_blob.py"), Path("runtime/interface/ask_bindings.py")}


def modules() -> list[Path]:
    return [path for path in TESTS.rglob("*.py") if "__pycache__" not in path.parts]


def is_test(name: str) -> bool:
    return any(part.startswith("test_") for part in name.split("."))


def imported(path: Path) -> set[str]:
    """The names of modules that a file imports, also within its functions."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            start = "." * node.level + (node.module or "")
            found |= {start} | {f"{start}.{alias.name}" for alias in node.names}
    return found


def test_no_test_module_is_imported():
    wrong = {
        (str(path.relative_to(TESTS)), name)
        for path in modules()
        for name in imported(path)
        if name.startswith(("tests", ".", "test_")) and is_test(name)
    }
    assert not wrong


def test_helpers_are_in_support():
    tests = [path for path in modules() if SUPPORT not in path.parents]
    others = {path.relative_to(TESTS) for path in tests if not is_test(path.name)}
    assert {path for path in others if path.name not in ("__init__.py", "conftest.py")} == COMMANDS
    assert not list(SUPPORT.rglob("test_*.py"))


def test_folders_mirror_the_package():
    package = TESTS.parent / "trt_et"
    for folder in {path.parent for path in modules()} - {TESTS, SUPPORT}:
        name = folder.relative_to(TESTS)
        if SUPPORT in folder.parents or name.parts[0] in NOT_MIRRORED:
            continue
        assert (package / name).is_dir(), f"tests/{name} has no counterpart trt_et/{name}"


def test_no_folder_has_many_files():
    sizes = Counter(path.parent for path in modules() if path.name != "__init__.py")
    assert not {f: n for f, n in sizes.items() if n > FILES_IN_A_FOLDER}
