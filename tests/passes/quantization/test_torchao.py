"""Models quantized by torchao (``quantize_``) lower and run; weights that are int8 stay so."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from torch import nn
from torchao.quantization import (
    Float8WeightOnlyConfig,
    Int8DynamicActivationInt8WeightConfig,
    Int8DynamicActivationIntxWeightConfig,
    Int8WeightOnlyConfig,
    IntxWeightOnlyConfig,
    quantize_,
)
from torchao.quantization.granularity import PerGroup

from tests.support.lowering import blobs, lower, reference
from tests.support.programs.quantized_models import Mlp, quantize
from tests.support.programs.quantized_networks import Network, needs_rtx, plan
from tests.support.sampled import sampled
from tests.support.simulated_gpus import check

WEIGHTS_ONLY = {
    "int8 weights": Int8WeightOnlyConfig(),
    "int8 weights, asymmetric": IntxWeightOnlyConfig(),
    "int4 weights in groups": IntxWeightOnlyConfig(torch.int4, PerGroup(32)),
    "fp8 weights": Float8WeightOnlyConfig(),
}
DYNAMIC = {
    "dynamic int8": Int8DynamicActivationInt8WeightConfig(),
    "dynamic int8, asymmetric": Int8DynamicActivationIntxWeightConfig(),
}
CONFIGS = WEIGHTS_ONLY | DYNAMIC


@cache
def made(name: str, width: int = 64) -> tuple[nn.Module, tuple[torch.Tensor]]:
    torch.manual_seed(0)
    model = Mlp(width).eval()
    quantize_(model, CONFIGS[name])
    return model, (torch.randn(4, width),)


def program(name: str, width: int = 64) -> torch.export.ExportedProgram:
    model, inputs = made(name, width)
    with torch.no_grad():
        return torch.export.export(model, inputs)


class Shared(nn.Module):
    """An int8 weight that is also summed up, which stays on the CPU."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.inputs = (torch.randn(4, 16),)
        self.register_buffer("weight", torch.randint(-127, 127, (8, 16), dtype=torch.int8))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        weight = self.weight.t()
        return x @ weight.to(torch.float32), weight.sum(0)


class Returned(nn.Module):
    """Returns what it quantizes."""

    inputs = (torch.linspace(-1, 1, 64).reshape(4, 16),)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scale, zero = torch.ops.torchao.choose_qparams_affine(
            x, "SYMMETRIC", [1, x.shape[1]], torch.int8, -128, 127, 1e-7, None, torch.int8, True
        )
        return torch.ops.torchao.quantize_affine(
            x, [1, x.shape[1]], scale, zero, torch.int8, -128, 127
        )


class Wrapping(Returned):
    """Computes with int8 numbers, which begin anew behind 127."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (super().forward(x) + 100).to(torch.float32) * 2


@cache
def made_by_pt2e() -> tuple[nn.Module, tuple[torch.Tensor]]:
    torch.manual_seed(0)
    inputs = (torch.randn(4, 16),)
    return quantize(Mlp().eval(), inputs, fp8=True).module(), inputs


def excludes_casts(node: torch.fx.Node) -> bool:
    return "_to_dim_order_copy" in str(node.target)


# A model and its inputs, options of the partitioner, and how far it may be from eager.
CASES = {
    # A scale that differs in its last bit moves a number that is half way to the next one.
    **{name: (lambda name=name: made(name), {}, 0.01) for name in DYNAMIC},
    **{name: (lambda name=name: made(name), {}, 1e-5) for name in WEIGHTS_ONLY},
    "fp8 by PT2E": (made_by_pt2e, {}, 1e-5),
    "product excluded": (lambda: made("int8 weights"), {"excluded_ops": ["aten.mm"]}, 1e-5),
    "cast excluded": (
        *(lambda: made("int4 weights in groups"), {"excluded_ops": [excludes_casts]}, 1e-5),
    ),
    **{
        model.__name__: (lambda model=model: (model(), model().inputs), {}, limit)
        for model, limit in ((Shared, 1e-5), (Returned, 1), (Wrapping, 2))
    },
}


@pytest.mark.parametrize("case", sampled(CASES, 12))
def test_it_runs_like_eager(case):
    make, options, limit = CASES[case]
    model, inputs = make()
    with torch.no_grad():
        exported = torch.export.export(model, inputs)
    before = exported.graph_module.code
    partitioner = reference(**options)
    pte = lower(exported, partitioner=partitioner)
    assert exported.graph_module.code == before
    check(pte, model, inputs, inputs, atol=limit, rtol=1e-5)
    if case in (*CONFIGS, "fp8 by PT2E"):
        assert not partitioner.report.not_delegated
        assert len(partitioner.report.partitions) == 1


@needs_rtx
@pytest.mark.parametrize("name", sampled(CONFIGS))
def test_tensorrt_rtx_builds_it(name):
    assert blobs(lower(program(name), builder="tensorrt_rtx"))


@needs_rtx
def test_the_engine_holds_the_weights_in_int8():
    (blob,) = blobs(lower(program("int8 weights", 512), builder="tensorrt_rtx"))
    assert len(blob) < 2 * (2 * 512 * 1024)


@needs_rtx
def test_int8_weights_are_dequantized_by_a_layer():
    network = Network(program("int8 weights"))
    assert network.kinds["DEQUANTIZE"] == 2
    assert network.kinds["QUANTIZE"] == 0
    int8 = [w for w in network.constants.values() if str(w.dtype) == "int8"]
    assert [w.size for w in int8] == [2 * 64 * 64] * 2


def test_the_int8_weight_of_an_operator_that_stays_out_stays_out():
    report = reference(excluded_ops=["aten.mm"]).explain(program("int8 weights"))
    reasons = {name: why for _, name, why in report.not_delegated}
    cast = reasons["dim_order_ops::_to_dim_order_copy.default"]
    assert cast == "no operator of an engine uses its quantized or dequantized tensor"
    assert "aten::permute_copy.default" in reasons


@needs_rtx
def test_an_int8_weight_leaves_no_engine():
    model = Shared()
    pte = lower(torch.export.export(model, model.inputs), builder="tensorrt_rtx")
    assert len(blobs(pte)) == 1


@pytest.mark.long
def test_fp8_by_pt2e_says_that_it_is_computed_in_floats(caplog):
    plan(torch.export.export(*made_by_pt2e()))
    assert "3 quantize operators are computed in floats: PT2E rounds to whole" in caplog.text


@pytest.mark.long
@needs_rtx
def test_tensorrt_rtx_builds_fp8_by_pt2e():
    assert blobs(lower(torch.export.export(*made_by_pt2e()), builder="tensorrt_rtx"))
