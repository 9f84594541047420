"""Models quantized by torchao (``quantize_``) lower and run; weights that are int8 stay so."""

from __future__ import annotations

from functools import cache
from pathlib import Path

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

from tests.lowering_helpers import blobs, lower
from tests.quantized_models import Mlp
from tests.test_end_to_end import run_stock
from tests.test_quantized import Network, needs_rtx, plan
from trt_et import TensorRTPartitioner

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


# A name, and options of the partitioner.
CASES = {name: (name, {}) for name in CONFIGS} | {
    "product excluded": ("int8 weights", {"excluded_ops": ["aten.mm"]}),
    "cast excluded": (
        "int4 weights in groups",
        {"excluded_ops": [lambda node: "_to_dim_order_copy" in str(node.target)]},
    ),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Every case, lowered, and run in one process of the stock runtime."""
    folder = tmp_path_factory.mktemp("torchao")
    for case, (name, options) in CASES.items():
        model, inputs = made(name)
        (folder / f"{case}.pte").write_bytes(lower(program(name), **options))
        torch.save(list(inputs), folder / f"{case}.inputs")
        torch.save(model(*inputs).detach(), folder / f"{case}.expected")
    run_stock(folder, "simulated:1", *CASES)
    return folder


@pytest.mark.parametrize("case", CASES)
def test_it_runs_like_eager(folder, case):
    expected = torch.load(folder / f"{case}.expected")
    # A scale that differs in its last bit moves a number that is half way to the next one.
    tolerance = 0.01 if case in DYNAMIC else 1e-5
    for (found,) in torch.load(folder / f"{case}.outputs"):
        torch.testing.assert_close(found, expected, atol=tolerance, rtol=1e-5)


@pytest.mark.parametrize("name", WEIGHTS_ONLY)
def test_quantized_weights_are_in_one_engine(name):
    report = plan(program(name))
    assert not report.left_out
    assert len(report.partitions) == 1


@needs_rtx
@pytest.mark.parametrize("name", WEIGHTS_ONLY)
def test_tensorrt_rtx_builds_it(name):
    assert blobs(lower(program(name), builder="tensorrt_rtx"))


@needs_rtx
@pytest.mark.parametrize("name", ["int8 weights", "int4 weights in groups"])
def test_the_engine_holds_the_weights_in_int8(name):
    (blob,) = blobs(lower(program(name, 512), builder="tensorrt_rtx"))
    assert len(blob) < 2 * (2 * 512 * 1024)


@needs_rtx
def test_int8_weights_are_dequantized_by_a_layer():
    network = Network(program("int8 weights"))
    assert network.kinds["DEQUANTIZE"] == 2
    assert network.kinds["QUANTIZE"] == 0
    int8 = [w for w in network.constants.values() if str(w.dtype) == "int8"]
    assert [w.size for w in int8] == [2 * 64 * 64] * 2


def test_the_int8_weight_of_an_operator_that_stays_out_stays_out():
    partitioner = TensorRTPartitioner(builder="reference", excluded_ops=["aten.mm"])
    report = partitioner.explain(program("int8 weights"))
    reasons = {name: why for _, name, why in report.left_out}
    cast = reasons["dim_order_ops::_to_dim_order_copy.default"]
    assert cast == "nothing that it quantizes or dequantizes for is in an engine"
    assert "aten::permute_copy.default" in reasons


class Shared(nn.Module):
    """An int8 weight that is also summed up, which stays on the CPU."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.register_buffer("weight", torch.randint(-127, 127, (8, 16), dtype=torch.int8))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        weight = self.weight.t()
        return x @ weight.to(torch.float32), weight.sum(0)


@pytest.mark.parametrize("builder", ["reference", pytest.param("tensorrt_rtx", marks=needs_rtx)])
def test_an_int8_weight_leaves_no_engine(tmp_path, builder):
    x = (torch.randn(4, 16),)
    pte = lower(torch.export.export(Shared(), x), builder=builder)
    assert len(blobs(pte)) == 1
    if builder == "reference":
        (tmp_path / "shared.pte").write_bytes(pte)
        torch.save(list(x), tmp_path / "shared.inputs")
        run_stock(tmp_path, "simulated:1", "shared")
        for found in torch.load(tmp_path / "shared.outputs"):
            torch.testing.assert_close(list(found), list(Shared()(*x)))


def test_what_is_quantized_at_run_time_stays_on_the_cpu_with_the_reason():
    report = plan(program("dynamic int8"))
    reasons = {why for _, name, why in report.left_out if "_to_dim_order_copy" in name}
    assert "TensorRT quantizes to torch.int8, but does not compute with it" in reasons
    claimed = [op for partition in report.partitions for op in partition.operators]
    assert claimed.count("aten::mm.default") == 2
