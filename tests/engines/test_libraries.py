"""Which builder a name stands for, and what is said where it is not there."""

from __future__ import annotations

import pytest

from tests.support.lowering import export, lower, reference
from trt_et import TensorRTPartitioner
from trt_et.engines import BuildOptions, EngineBuilder, libraries, make_builder
from trt_et.errors import BuilderUnavailable, OptionError


def test_a_reference_engine_is_called_slow_once_and_only_when_it_is_built(caplog):
    libraries.warn_once.cache_clear()
    program = export("mlp")
    reference().explain(program)
    assert "simulated GPUs" not in caplog.text
    lower(program, partitioner=reference())
    lower(program, partitioner=reference())
    lines = [each.getMessage() for each in caplog.records if each.name.startswith("trt_et")]
    (line,) = [line for line in lines if "simulated GPUs" in line]
    assert "seconds" in line


@pytest.mark.parametrize("name", ["tensorrt", "tensorrt_rtx"])
def test_two_packages_of_one_module_are_refused(name, monkeypatch):
    both = {"torch-tensorrt", "torch-tensorrt-rtx"}
    monkeypatch.setattr(libraries, "installed_packages", lambda: both)
    command = rf"pip uninstall torch-tensorrt torch-tensorrt-rtx && .*{name.replace('_', '-')}"
    with pytest.raises(BuilderUnavailable, match=rf"are both installed; .*{command}"):
        make_builder(name)
    make_builder("reference")


class Duck:
    name = "duck"

    def build(self, request):
        return b""


class Minimal(Duck, EngineBuilder):
    """A name and a way to build are all that a builder needs."""


class Nameless(EngineBuilder):
    def build(self, request):
        return b""


def test_a_builder_of_ones_own_needs_a_name_and_build():
    minimal = Minimal()
    assert make_builder(minimal) is minimal
    assert not minimal.fingerprint()
    assert minimal.make_support_check(BuildOptions()) is None
    TensorRTPartitioner(builder=minimal)


@pytest.mark.parametrize("builder", [Duck(), Nameless()])
def test_another_object_is_refused_with_the_class_to_derive_from(builder):
    kind = type(builder).__name__
    with pytest.raises(OptionError, match=f"builder is {kind}; .*trt_et.engines.EngineBuilder"):
        make_builder(builder)


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("tensort", "tensorrt or tensorrt_rtx"),
        ("rtx", "tensorrt_rtx"),
        ("TensorRT-RTX", "tensorrt_rtx or tensorrt"),
        ("onxx", "onnx"),
    ],
)
def test_an_unknown_name_is_answered_by_the_known_one(name, near):
    with pytest.raises(OptionError, match=f"builder '{name}' is unknown; .*did you mean {near}"):
        make_builder(name)
