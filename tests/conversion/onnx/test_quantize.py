"""Quantized programs as QuantizeLinear and DequantizeLinear."""

from __future__ import annotations

from collections import Counter
from functools import partial

import onnx
import pytest
import torch
from torch import nn
from torch.export import ExportedProgram

from tests.conversion.onnx.test_equal import assert_equal
from tests.passes.quantization.test_torchao import CONFIGS, made
from tests.support.lowering import lower
from tests.support.models import Function
from tests.support.onnx.payloads import Payload, of_program
from tests.support.programs.pt2e import quantize, quantizer
from tests.support.programs.quantized_models import MODELS, quantized
from tests.support.sampled import sampled
from trt_et import TensorRTPartitioner
from trt_et.quantizer import fp8, int8

IMAGE = torch.randn(2, 8, 9, 8, generator=torch.Generator().manual_seed(0))
PT2E = torch.ops.quantized_decomposed


def layers() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(8, 16, 3), nn.ReLU(), nn.Flatten(2), nn.Linear(42, 40))


def test_int8_weights_are_stored_as_int8_between_onnx_operators():
    program = quantize(layers(), (IMAGE,), quantizer(int8()))
    assert_equal(program)
    (payload,) = of_program(lower(program, builder="onnx"))
    kinds = Counter(node.op_type for node in payload.proto.graph.node)
    assert kinds["QuantizeLinear"] == 2
    assert kinds["DequantizeLinear"] == 4
    assert sorted(map(len, payload.weights.values())) == [16 * 8 * 9, 40 * 42]


def test_fp8_is_onnx_fp8():
    program = quantize(layers(), (IMAGE,), quantizer(fp8()))
    (payload,) = of_program(lower(program, builder="onnx"))
    kinds = Counter(node.op_type for node in payload.proto.graph.node)
    assert kinds["QuantizeLinear"] >= 2
    assert_equal(program)


def test_zero_points_bounds_and_half_precision():
    def rounded(x, zero_point):
        how = (0.05, zero_point, -100, 90, torch.int8)
        y = PT2E.quantize_per_tensor.default((x * 2).float(), *how)
        return PT2E.dequantize_per_tensor.default(y, *how).to(x.dtype) + 1

    model = Function(lambda *inputs: [rounded(x, zero) for x in inputs for zero in (0, 5)])
    assert_equal(torch.export.export(model, (IMAGE, IMAGE.half())))


class Moved(nn.Module):
    """A weight that the program transposes before it applies the scales."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.register_buffer("weight", torch.randint(-128, 127, (48, 32), dtype=torch.int8))
        self.register_buffer("scales", torch.rand(48, dtype=torch.float64) + 0.1)
        self.register_buffer("zeros", torch.zeros(48, dtype=torch.int64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        how = (self.scales, self.zeros, 1, -128, 127, torch.int8)
        return x @ PT2E.dequantize_per_channel.default(self.weight.t(), *how)


def test_a_weight_that_is_transposed_before_its_scales_stays_int8():
    program = torch.export.export(Moved(), (torch.randn(3, 32),))
    assert_equal(program)
    report = TensorRTPartitioner(builder="onnx").explain(program)
    assert not report.not_delegated, str(report)
    (payload,) = of_program(lower(program, builder="onnx"))
    assert products(payload) == ["INT8"]
    assert 48 * 32 in map(len, payload.weights.values())


class Shared(Moved):
    """Sums up the transposed weight as well, which stays on the CPU."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return super().forward(x), self.weight.t().sum(0)


def test_a_moved_weight_that_the_cpu_needs_as_well_stays_there():
    program = torch.export.export(Shared(), (torch.randn(3, 32),))
    assert_equal(program)
    report = TensorRTPartitioner(builder="onnx").explain(program)
    assert "permute_copy" in str(report.not_delegated), str(report)


def int8_by_pt2e(model: type[nn.Module], shape: tuple[int, ...]) -> ExportedProgram:
    inputs = (torch.randn(shape, generator=torch.Generator().manual_seed(0)),)
    return quantize(model().eval(), inputs, quantizer(int8()))


def int8_by_torchao(name: str) -> ExportedProgram:
    model, inputs = made(name)
    with torch.no_grad():
        return torch.export.export(model, inputs)


TOOLS = {
    **{f"TensorRTQuantizer, {name}": partial(int8_by_pt2e, *MODELS[name]) for name in MODELS},
    "XNNPACKQuantizer with zero points, residual": (
        lambda: quantized("residual", symmetric=False)[0]
    ),
    **{f"torchao, {name}": partial(int8_by_torchao, name) for name in CONFIGS if "int8" in name},
}


@pytest.mark.parametrize("tool", sampled(TOOLS, 8))
def test_each_product_with_a_weight_is_in_the_network_with_8_bits(tool):
    torch.manual_seed(0)
    program = TOOLS[tool]()
    assert_equal(program)
    (payload,) = of_program(lower(program, builder="onnx"))
    found = products(payload)
    assert found
    assert set(found) == {"INT8"}


def products(payload: Payload) -> list[str]:
    """The dtype of the weight of each product that has one."""
    graph = payload.proto.graph
    makers = {output: node for node in graph.node for output in node.output}
    weights = {tensor.name: tensor.data_type for tensor in graph.initializer}
    found = []
    for node in graph.node:
        if node.op_type not in ("MatMul", "Gemm", "Conv"):
            continue
        source = node.input[1]
        while source in makers:
            source = makers[source].input[0]
        if source in weights:
            found.append(onnx.TensorProto.DataType.Name(weights[source]))
    return found
