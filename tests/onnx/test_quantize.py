"""Quantized programs as QuantizeLinear and DequantizeLinear."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from torch import nn

from tests.onnx.test_equal import assert_equal
from tests.support.lowering import lower
from tests.support.models import Function
from tests.support.onnx.payloads import of_program
from tests.support.programs.pt2e import quantize, quantizer
from trt_et import TensorRTPartitioner
from trt_et.quantizer import fp8, int8

IMAGE = torch.randn(2, 8, 9, 8, generator=torch.Generator().manual_seed(0))
aten = torch.ops.aten
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


@pytest.mark.parametrize("zero_point", [0, 5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_zero_points_bounds_and_half_precision(zero_point, dtype):
    def rounded(x):
        how = (0.05, zero_point, -100, 90, torch.int8)
        y = PT2E.quantize_per_tensor.default((x * 2).float(), *how)
        return PT2E.dequantize_per_tensor.default(y, *how).to(x.dtype) + 1

    assert_equal(torch.export.export(Function(rounded), (IMAGE.to(dtype),)))


def test_a_weight_that_is_transposed_before_its_scales_stays_on_the_cpu():
    weight = torch.randint(-128, 127, (48, 32), dtype=torch.int8)
    scales, zeros = torch.rand(48, dtype=torch.float64) + 0.1, torch.zeros(48, dtype=torch.int64)

    class Moved(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("weight", weight)
            self.register_buffer("scales", scales)
            self.register_buffer("zeros", zeros)

        def forward(self, x):
            how = (self.scales, self.zeros, 1, -128, 127, torch.int8)
            return x @ PT2E.dequantize_per_channel.default(self.weight.t(), *how)

    program = torch.export.export(Moved(), (torch.randn(3, 32),))
    assert_equal(program)
    report = TensorRTPartitioner(builder="onnx").explain(program)
    assert "no Transpose of INT8" in str(report)
