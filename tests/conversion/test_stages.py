"""The list of ``conversion/stages.py`` is what the support check and the interpreter go by."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from tests.support.lowering import request
from tests.support.mended import entry
from tests.support.models import Function
from trt_et.conversion import operator, stages
from trt_et.conversion.operator import Operator, Step
from trt_et.conversion.stages import OPERATORS
from trt_et.conversion.trial import try_as_network
from trt_et.engines import BuildOptions
from trt_et.engines.serialize import build_network
from trt_et.graph.fragment import fragment_of_call

REPORTED = [one for one in OPERATORS if isinstance(one, Operator) and one.upstream]


def test_what_the_support_check_accepts_is_converted_by_the_same_entry(monkeypatch):
    asked = request(Function(torch.special.bessel_j0), torch.eye(3))  # It has no converter.
    (call,) = (n for n in asked.program.exported.graph.nodes if "bessel" in str(n.target))
    check = try_as_network(BuildOptions())
    assert check(fragment_of_call(call, {})) is not None

    def add_scratch(layers, args, kwargs):
        return layers.result(layers.net.add_identity(args[0]), "scratch")

    bessel = Operator("bessel", (call.target,), add_layer=add_scratch)
    monkeypatch.setattr(stages, "OPERATORS", (*OPERATORS, bessel))
    assert check(fragment_of_call(call, {})) is None
    network = build_network(asked).network
    names = [network.get_layer(index).name for index in range(network.num_layers)]
    assert any(name.endswith("_scratch") for name in names), names


@pytest.mark.parametrize("one", REPORTED, ids=lambda one: one.name)
def test_the_report_of_an_entry_names_its_file(one):
    page = Path(__file__).parents[2] / f"docs/internals/upstream/{one.upstream}.md"
    function = one.unsupported or one.rewrite or one.decompose or one.add_layer
    assert f"`{function.__module__.replace('.', '/')}.py`" in page.read_text()


@pytest.mark.parametrize(
    ("fixed_in", "expected"),
    [(None, 1), (("torch", "99"), 1), (("not-installed", "1.0"), 1), (("torch", "2.0"), 0)],
)
def test_a_rewrite_is_applied_until_the_release_that_fixes_it(fixed_in, expected, monkeypatch):
    applied = []
    rewrite = Operator("relu", (torch.ops.aten.relu.default,), rewrite=applied.append)
    rewrite = replace(rewrite, fixed_in=fixed_in)
    monkeypatch.setattr(stages, "OPERATORS", (Step.DECOMPOSE, rewrite))
    build_network(request(nn.ReLU(), torch.eye(3)))
    assert len(applied) == expected


def test_a_release_of_the_engine_library_that_torch_tensorrt_does_not_use_fixes_nothing(
    monkeypatch,
):
    """It may be left over from an environment's earlier life."""
    softplus = entry("softplus")
    installed = {"torch-tensorrt-rtx": "tensorrt-rtx", "torch-tensorrt": "tensorrt"}
    monkeypatch.setattr(operator, "version", lambda package: "99")
    for used in installed.values():
        monkeypatch.setattr(operator, "engine_library", lambda used=used: used.replace("-", "_"))
        for named in installed.values():
            operator._is_installed.cache_clear()
            assert replace(softplus, fixed_in=(named, "1.6")).is_fixed() == (named == used)
    monkeypatch.undo()
    operator._is_installed.cache_clear()
