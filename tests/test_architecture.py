"""The folders of the package depend on each other in one direction, and stay small."""

from __future__ import annotations

import re
from graphlib import CycleError
from pathlib import Path

import pytest

from tests.support import architecture

PACKAGE = Path(__file__).parents[1] / "trt_et"
FILES, LINES, FUNCTION = 20, 300, 60

# What each folder (or module beside the folders) may import, from the lowest one upwards.
_BASE = {"errors", "requirements"}
_BLOB = {*_BASE, "blob"}
_GRAPH = {*_BASE, "graph"}
_OPS = {*_GRAPH, "ops"}
_LOWERING = {*_BLOB, *_OPS, "lowering"}
_CACHE = {*_BLOB, "cache"}
_CONVERSION = {*_LOWERING, "options", "conversion"}
_BUILDERS = {*_CONVERSION, *_CACHE, "builders"}
_PARTITION = {*_BUILDERS, "partition"}
_SCHEDULER = {*_BUILDERS, "scheduler"}
BELOW = {
    "errors": set(),
    "requirements": set(),
    "options": _BASE,
    "blob": _BASE,
    "graph": _BASE,
    "ops": _GRAPH,
    "engine_info": {"blob"},
    "target_device": _BLOB,
    "device_state": _BLOB,
    "device_inputs": {*_BLOB, "device_state"},
    "memory_planning": {*_BLOB, "device_inputs", "device_state"},
    "runtime": _BASE,
    "inspection": _BLOB,
    "lowering": _LOWERING,
    "cache": _CACHE,
    "conversion": _CONVERSION,
    "builders": _BUILDERS,
    "partition": _PARTITION,
    "scheduler": _SCHEDULER,
    "passes": _PARTITION,
    "backend": {*_SCHEDULER, "target_device"},
    "partitioner": {*_SCHEDULER, "partition", "passes", "backend", "target_device"},
    "recipes": {*_BASE, "memory_planning", "partitioner"},
    "optimum": {*_BASE, "memory_planning", "partitioner"},
    "llm": {*_LOWERING, "builders", "memory_planning", "partitioner", "target_device"},
    "__init__": {*_BASE, "backend", "cache", "memory_planning", "partitioner"},
    "tools": {*_BASE, "inspection", "memory_planning", "partitioner", "runtime"},
    "cli": {*_BLOB, "cache", "inspection", "tools", "__init__"},
}
# Files over the limit, each with its reason. The test fails when one of them shrinks, too.
LONG_FILES: dict[str, str] = {}


def test_the_folders_have_an_order():
    order = architecture.folder_order(PACKAGE)
    assert set(order) <= BELOW.keys()
    for folder, below in BELOW.items():
        for other in (below - {folder}) & set(order):
            assert folder not in BELOW[other], f"{folder} and {other} may import each other"


def test_every_folder_is_listed():
    folders = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    modules = {path.stem for path in PACKAGE.glob("*.py")}
    assert folders | modules == BELOW.keys()


def test_no_import_goes_up():
    assert architecture.upwards(PACKAGE, BELOW) == set()


def test_no_module_imports_itself_through_others():
    architecture.cycles_checked(PACKAGE)


def test_torch_tensorrt_is_imported_in_conversion_only():
    found = architecture.vendor_imports(PACKAGE, "torch_tensorrt")
    assert found
    assert {file.split("/")[0] for file in found} == {"conversion"}


def test_tensorrt_is_imported_in_conversion_and_builders_only():
    found = architecture.vendor_imports(PACKAGE, "tensorrt")
    found |= architecture.vendor_imports(PACKAGE, "tensorrt_rtx")
    assert {file.split("/")[0] for file in found} == {"conversion", "builders"}


def test_files_folders_and_functions_are_small():
    assert {k: n for k, n in architecture.files_by_folder(PACKAGE).items() if n > FILES} == {}
    assert architecture.long_files(PACKAGE, LINES) == LONG_FILES.keys()
    assert architecture.long_functions(PACKAGE, FUNCTION) == set()


# Each once had senses of our own, in Python and C++.
PRIVATE_WORDS = re.compile(r"\b(places|claims?|leaf|told|glance|kept whole)\b", re.IGNORECASE)


def test_no_word_has_a_private_sense():
    files = [path for path in PACKAGE.rglob("*") if path.suffix in (".py", ".cpp", ".h", ".c")]
    assert len(files) > 200
    found = {
        f"{path.relative_to(PACKAGE)}: {match[0]}"
        for path in files
        for match in PRIVATE_WORDS.finditer(path.read_text())
    }
    assert found == set()


# The checks themselves, on a small package.

ALLOWED = {"low": set(), "high": {"low"}, "__init__": set()}


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """Two folders: ``high`` imports ``low``."""
    write(tmp_path / "small", "__init__.py", "")
    write(tmp_path / "small", "low/a.py", "import os\n")
    write(tmp_path / "small", "high/b.py", "def f():\n    from small.low import a\n    return a\n")
    return tmp_path / "small"


def write(package: Path, name: str, text: str) -> None:
    (package / name).parent.mkdir(parents=True, exist_ok=True)
    (package / name).write_text(text)


def test_a_sound_package_passes(small):
    assert architecture.folder_order(small) == ["low", "high"]
    assert architecture.upwards(small, ALLOWED) == set()
    assert architecture.cycles_checked(small)[:2] == ["small.low.a", "small.high.b"]


@pytest.mark.parametrize("text", ["import small.high.b\n", "from small.high.b import f\n"])
def test_an_import_that_goes_up_is_found(small, text):
    write(small, "low/c.py", text)
    assert architecture.upwards(small, ALLOWED) == {"low/c.py -> small.high.b"}
    with pytest.raises(CycleError):
        architecture.folder_order(small)


def test_a_circle_of_modules_in_one_folder_is_found(small):
    write(small, "low/a.py", "from small.low import c\n")
    write(small, "low/c.py", "def f():\n    import small.low.a\n")
    assert architecture.folder_order(small) == ["low", "high"]
    with pytest.raises(CycleError):
        architecture.cycles_checked(small)


def test_a_relative_import_is_refused(small):
    write(small, "low/c.py", "from . import a\n")
    with pytest.raises(AssertionError, match=r"low/c\.py:1: a relative import"):
        list(architecture.imports(small))


def test_an_import_of_a_vendor_is_found_within_a_function(small):
    write(small, "low/c.py", "def f():\n    from torch_tensorrt.dynamo import x\n")
    write(small, "low/d.py", "import torch_tensorrt as t\n")
    write(small, "low/e.py", "import torch_tensorrt_rtx\n")
    assert architecture.vendor_imports(small, "torch_tensorrt") == {"low/c.py", "low/d.py"}


def test_what_is_too_large_is_found(small):
    write(small, "low/c.py", "class C:\n    def f(self):\n" + "        x = 1\n" * 4)
    write(small, "low/d.py", "def g():\n    '''A\n    long\n    docstring.'''\n    return 1\n")
    assert architecture.files_by_folder(small) == {"low": 3, "high": 1}
    assert architecture.long_files(small, 5) == {"low/c.py"}
    assert architecture.long_files(small, 6) == set()
    assert architecture.long_functions(small, 4) == {"low/c.py: f"}
    assert architecture.long_functions(small, 5) == set()
