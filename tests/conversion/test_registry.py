"""The list of ``conversion/registry.py`` is what the support check and the interpreter go by."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest
import torch
from torch import nn

from tests.support.mended import entry
from trt_et.conversion import operator, operators, registry
from trt_et.conversion.operator import Operator, Step
from trt_et.conversion.registry import OPERATORS
from trt_et.conversion.support import make_support_check
from trt_et.engines import BuildOptions, BuildRequest
from trt_et.engines.serialize import build_network
from trt_et.graph.fragment import fragment_of_call
from trt_et.lowering.lower import lower_partition

ENTRIES = [one for one in OPERATORS if isinstance(one, Operator)]


class Bessel(nn.Module):
    """Calls an operator that Torch-TensorRT has no converter for."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.special.bessel_j0(x)


def request_for(model: nn.Module, *inputs: torch.Tensor) -> BuildRequest:
    program = torch.export.export(model, inputs).run_decompositions({})
    return BuildRequest("test", lower_partition(program, "test"), 0, BuildOptions())


def test_what_the_support_check_accepts_is_converted_by_the_same_entry(monkeypatch):
    request = request_for(Bessel(), torch.eye(3))
    (call,) = (n for n in request.lowered.program.graph.nodes if "bessel" in str(n.target))
    check = make_support_check(BuildOptions())
    assert check(fragment_of_call(call, {})) is not None

    def add_scratch(layers, args, kwargs):
        return layers.result(layers.net.add_identity(args[0]), "scratch")

    bessel = Operator("bessel", (call.target,), add_layer=add_scratch)
    monkeypatch.setattr(registry, "OPERATORS", (*OPERATORS, bessel))
    assert check(fragment_of_call(call, {})) is None
    network = build_network(request).network
    names = [network.get_layer(index).name for index in range(network.num_layers)]
    assert any(name.endswith("_scratch") for name in names), names


def test_every_entry_of_the_package_is_in_the_list():
    """An entry that is not listed does nothing."""
    files = Path(operators.__file__).parent.glob("*.py")
    modules = [import_module(f"{operators.__name__}.{path.stem}") for path in files]
    declared = [one for m in modules for one in vars(m).values() if isinstance(one, Operator)]
    assert {one.name for one in declared} == {one.name for one in ENTRIES}
    assert len(declared) == len(ENTRIES)


@pytest.mark.parametrize("part", ["decompose", "add_layer"])
def test_no_operator_has_two_of_a_kind(part):
    targets = [target for one in ENTRIES if getattr(one, part) for target in one.targets]
    assert len(targets) == len(set(targets))


@pytest.mark.parametrize("one", [one for one in ENTRIES if one.upstream], ids=lambda one: one.name)
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
    monkeypatch.setattr(registry, "OPERATORS", (Step.DECOMPOSE, rewrite))
    build_network(request_for(nn.ReLU(), torch.eye(3)))
    assert len(applied) == expected


def test_a_release_of_the_engine_library_that_torch_tensorrt_does_not_use_fixes_nothing(
    monkeypatch, request
):
    """It may be left over from an environment's earlier life."""
    request.addfinalizer(operator._is_installed.cache_clear)
    softplus = entry("softplus")
    installed = {"torch-tensorrt-rtx": "tensorrt-rtx", "torch-tensorrt": "tensorrt"}
    monkeypatch.setattr(operator, "version", lambda package: "99")
    for used in installed.values():
        monkeypatch.setattr(operator, "installed_variant", lambda used=used: used.replace("-", "_"))
        for named in installed.values():
            operator._is_installed.cache_clear()
            assert replace(softplus, fixed_in=(named, "1.6")).is_fixed() == (named == used)
