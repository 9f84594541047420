"""``make matrix``: what it reads from a run of the tests, and the page that it writes."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from trt_et.requirements import allowed_versions

ROOT = Path(__file__).parents[1]


def _load() -> Any:
    spec = importlib.util.spec_from_file_location(
        "version_matrix", ROOT / "scripts" / "version_matrix.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


matrix = _load()

TESTS = """
import pytest
def test_right(): pass
def test_wrong(): assert False
@pytest.mark.skip
def test_skipped(): pass
@pytest.fixture
def broken(): raise ValueError
@pytest.mark.parametrize("x", ["a b"])
def test_error(broken, x): pass
"""


def test_passed_and_failed_tests_are_read_from_what_pytest_prints(tmp_path):
    (tmp_path / "test_it.py").write_text(TESTS)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-ra", "test_it.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert matrix.outcome("runtime", done.returncode, done.stdout) == {
        "passed": 1,
        "failed": ["test_it.py::test_error[a b]", "test_it.py::test_wrong"],
    }


def test_a_step_that_ends_without_a_result_has_failed():
    assert matrix.outcome("demo", 0, "") == {"passed": 1, "failed": []}
    assert matrix.outcome("demo", 3, "") == {"passed": 0, "failed": ["demo ended with 3"]}
    assert matrix.outcome("models", -9, "")["failed"] == ["models ended with -9"]


def test_the_page_has_a_row_for_each_set_and_the_name_of_each_failure():
    def result(**failed: list[str]) -> dict[str, Any]:
        steps = {step: {"passed": 7, "failed": failed.get(step, [])} for step in matrix.STEPS}
        packages = {package: f"{package} 1.0" for package in matrix.PACKAGES}
        return {"date": "2026-11-22", "python": "3.10.1", "packages": packages, "steps": steps}

    page = matrix.page({"newest": result(models=["tests/a.py::b"]), "oldest": result()})
    rows = [line for line in page.splitlines() if line.startswith("| ")]
    assert [row.split(" | ")[0] for row in rows] == ["| set", "| ---", "| oldest", "| newest"]
    assert len({row.count("|") for row in rows}) == 1
    assert rows[2].endswith("| 7 | 7 | 7 | 7 | 7 | 2026-11-22 |")
    assert rows[3].endswith("| 7 | 7 | 7, 1 failed | 7 | 7 | 2026-11-22 |")
    assert "* newest, models: `tests/a.py::b`" in page


def test_the_oldest_set_is_the_lower_end_of_each_range():
    pins = [Requirement(pin) for pin in matrix.SETS["oldest"].constraints]
    assert {pin.name for pin in pins} >= {"torch", "executorch", "torch-tensorrt-rtx"}
    for pin in pins:
        allowed = SpecifierSet(allowed_versions(pin.name))
        (version,) = (specifier.version for specifier in pin.specifier)
        assert allowed.contains(version)
        lowest = [s.version for s in allowed if s.operator == ">="]
        assert all(version in (low, f"{low}.0") for low in lowest)
