"""The lists of ``conversion/registry.py`` are what the support check and the interpreter go by."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from trt_et.conversion import entries, prepare, registry
from trt_et.conversion.entries import Converter, Refusal, Rewrite, Step, resolve
from trt_et.conversion.registry import CONVERTERS, REWRITES
from trt_et.conversion.support import convertible_operators, make_support_check
from trt_et.engines import BuildOptions, BuildRequest
from trt_et.engines.serialize import build_network
from trt_et.graph.fragment import fragment_of_call
from trt_et.lowering.lower import lower_partition

aten = torch.ops.aten


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

    def add_scratch(ctx, node, args, kwargs):
        layer = ctx.net.add_identity(args[0])
        layer.name = f"scratch_{node.name}"
        return layer.get_output(0)

    from trt_et.conversion.converters import gather

    monkeypatch.setattr(gather, "add_scratch", add_scratch, raising=False)
    entry = Converter("gather:add_scratch")
    monkeypatch.setitem(registry.CONVERTERS, call.target, entry)
    assert check(fragment_of_call(call, {})) is None
    network = build_network(request).network
    names = [network.get_layer(index).name for index in range(network.num_layers)]
    assert any(name.startswith("scratch_") for name in names), names


@pytest.mark.parametrize(
    "entry", dict.fromkeys(CONVERTERS.values()), ids=lambda entry: entry.function
)
def test_every_converter_that_is_named_exists(entry):
    convertible_operators()  # Imports Torch-TensorRT.
    assert callable(entry.load())
    assert entry.is_available() in (True, False)
    if entry.applies:
        assert callable(resolve(entry.applies))


def test_an_operator_without_an_entry_has_no_converter_of_ours():
    assert registry.converter_for(aten.relu.default) is None


def test_the_rewrites_stand_in_an_order_that_meets_every_constraint():
    steps = [step if isinstance(step, Step) else step.apply for step in REWRITES]
    assert len(set(steps)) == len(steps)
    for step in REWRITES:
        for later, reason in step.before.items() if isinstance(step, Rewrite) else ():
            assert steps.index(later) > steps.index(step.apply), reason


def test_every_rewrite_of_the_package_is_in_the_list():
    """A rewrite that nobody lists is never applied."""
    listed = {step.apply.__module__ for step in REWRITES if isinstance(step, Rewrite)}
    folder = Path(registry.__file__).parent / "rewrites"
    files = {path.stem for path in folder.glob("*.py")} - {"__init__", "kv_cache_update"}
    assert {name.rpartition(".")[2] for name in listed} == files


@pytest.mark.parametrize(
    ("fixed_in", "expected"),
    [(None, 1), (("torch", "99"), 1), (("not-installed", "1.0"), 1), (("torch", "2.0"), 0)],
)
def test_a_rewrite_is_applied_until_the_release_that_mends_it(fixed_in, expected, monkeypatch):
    applied = []
    rewrite = Rewrite(applied.append, fixed_in=fixed_in)
    monkeypatch.setattr(prepare, "REWRITES", (Step.DECOMPOSE, rewrite))
    build_network(request_for(nn.ReLU(), torch.eye(3)))
    assert len(applied) == expected


@pytest.mark.parametrize("entry", [Rewrite(print), Refusal((), lambda node: None)])
def test_a_release_of_the_engine_library_that_torch_tensorrt_does_not_use_mends_nothing(
    entry, monkeypatch, request
):
    """It may be left over from an environment's earlier life."""
    request.addfinalizer(entries._is_installed.cache_clear)
    installed = {"torch-tensorrt-rtx": "tensorrt-rtx", "torch-tensorrt": "tensorrt"}
    monkeypatch.setattr(entries, "version", lambda package: "99")
    for used in installed.values():
        monkeypatch.setattr(entries, "installed_variant", lambda used=used: used.replace("-", "_"))
        for named in installed.values():
            entries._is_installed.cache_clear()
            assert replace(entry, fixed_in=(named, "1.6")).is_fixed() == (named == used)
