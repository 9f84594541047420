"""``make matrix``: the versions that it installs."""

from __future__ import annotations

import runpy
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from trt_et.requirements import allowed_versions

SCRIPT = Path(__file__).parents[1] / "scripts" / "version_matrix.py"


def test_every_set_has_steps_and_extras_that_exist():
    script = runpy.run_path(str(SCRIPT))
    project = (SCRIPT.parents[1] / "pyproject.toml").read_text()
    for wanted in script["SETS"].values():
        assert set(wanted.steps) <= script["STEPS"].keys()
        for extra in wanted.extra.split(","):
            assert f"\n{extra} = [" in project


def test_the_oldest_set_is_the_lower_end_of_each_range():
    sets = runpy.run_path(str(SCRIPT))["SETS"]
    pins = [Requirement(pin) for pin in sets["oldest"].constraints]
    assert {pin.name for pin in pins} >= {"torch", "executorch", "torch-tensorrt-rtx"}
    for pin in pins:
        allowed = SpecifierSet(allowed_versions(pin.name))
        (version,) = (specifier.version for specifier in pin.specifier)
        assert allowed.contains(version)
        lowest = [s.version for s in allowed if s.operator == ">="]
        # TensorRT-RTX has a fourth number.
        assert all(
            version in (low, f"{low}.0") or version.startswith(f"{low}.0.") for low in lowest
        )
