"""Which builder a name stands for, and what is said where it is not there."""

from __future__ import annotations

import pytest

from trt_et.engines import make_builder, registry
from trt_et.errors import BuilderUnavailable


def test_advice_names_packages_that_are_on_the_index(monkeypatch):
    monkeypatch.setattr(registry, "installed_variant", lambda: None)
    for builder in ("auto", "tensorrt", "tensorrt_rtx"):
        with pytest.raises(BuilderUnavailable) as raised:
            make_builder(builder)
        assert 'pip install "torch-tensorrt' in str(raised.value)
        assert "trt-et" not in str(raised.value)


def test_a_reference_engine_is_called_slow_once(caplog):
    registry._warn_once.cache_clear()
    make_builder("reference")
    make_builder("reference")
    (line,) = [record.getMessage() for record in caplog.records]
    assert "simulated GPUs" in line
    assert "seconds" in line
