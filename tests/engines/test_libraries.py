"""Which builder a name stands for, and what is said where it is not there."""

from __future__ import annotations

import pytest

from trt_et.engines import libraries, make_builder
from trt_et.errors import BuilderUnavailable


def test_a_reference_engine_is_called_slow_once(caplog):
    libraries._warn_once.cache_clear()
    make_builder("reference")
    make_builder("reference")
    (line,) = [each.getMessage() for each in caplog.records if each.name.startswith("trt_et")]
    assert "simulated GPUs" in line
    assert "seconds" in line


@pytest.mark.parametrize("name", ["tensorrt", "tensorrt_rtx"])
def test_two_packages_of_one_module_are_refused(name, monkeypatch):
    both = {"torch-tensorrt", "torch-tensorrt-rtx"}
    monkeypatch.setattr(libraries, "installed_packages", lambda: both)
    command = rf"pip uninstall torch-tensorrt torch-tensorrt-rtx && .*{name.replace('_', '-')}"
    with pytest.raises(BuilderUnavailable, match=rf"are both installed; .*{command}"):
        make_builder(name)
    make_builder("reference")
