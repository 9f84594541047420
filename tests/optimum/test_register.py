"""The file that ``optimum-cli`` imports when it starts."""

from __future__ import annotations

import runpy
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from tests.optimum.conftest import REGISTRY
from tests.optimum.test_recipe import exported, forward_of, linear
from tests.support.native_environment import ROOT

SOURCE = ROOT / "trt_et/optimum/register.py"
INSTALLED = "optimum/commands/register/register_trt_et.py"
_IMPORT = f"""
import runpy, sys
from types import ModuleType
parts = {REGISTRY!r}.split(".")
for end in range(1, len(parts) + 1):
    sys.modules[".".join(parts[:end])] = ModuleType(parts[end - 1])
sys.modules[{REGISTRY!r}].register_recipe = lambda name: print
runpy.run_path({str(SOURCE)!r})
print(*sorted({{"trt_et", "torch", "executorch"}} & set(sys.modules)))
"""


def test_the_build_installs_it_for_optimum_cli():
    found = {str(file): file for file in metadata.files("trt-et") or ()}
    assert Path(found[INSTALLED].locate()).read_text() == SOURCE.read_text()


def test_it_adds_the_recipe(registry, monkeypatch):
    monkeypatch.delitem(sys.modules, "trt_et.optimum", raising=False)  # It has another registry.
    runpy.run_path(str(SOURCE))
    pte = exported(registry["tensorrt"], linear(), builder="reference")
    monkeypatch.delitem(sys.modules, "trt_et.optimum", raising=False)
    assert len(forward_of(pte).delegates) == 1


def test_it_imports_nothing_before_the_recipe_runs():
    done = subprocess.run(
        [sys.executable, "-c", _IMPORT], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == ""


@pytest.mark.parametrize("missing", ["optimum.exporters", REGISTRY])
def test_without_optimum_executorch_it_does_nothing(monkeypatch, missing):
    monkeypatch.setitem(sys.modules, missing, None)
    runpy.run_path(str(SOURCE))
