"""Convolutions of dequantized numbers are built, and the same."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tests.support.lowering import lower
from tests.support.sampled import sampled
from trt_et.conversion.operators.products import QUANTIZED_CONVOLUTION
from trt_et.conversion.rewriting import rewrite
from trt_et.engine_program.make_program import make_engine_program
from trt_et.engine_program.program import unlift


class Dequantized(nn.Module):
    """A quantized convolution of dequantized numbers that went through ``between``."""

    def __init__(self, zero_point: int, between) -> None:
        super().__init__()
        self.zero_point = zero_point
        self.between = between
        self.register_buffer("weight", torch.randint(-127, 127, (4, 4, 1, 1), dtype=torch.int8))
        self.linear = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        operators = torch.ops.quantized_decomposed
        how = (0.25, self.zero_point, -128, 127, torch.int8)
        q = operators.quantize_per_tensor.default(x, *how)
        y = self.between(operators.dequantize_per_tensor.default(q, *how), self)
        weight = operators.dequantize_per_tensor.default(
            self.weight, 0.01, 0, -127, 127, torch.int8
        )
        return nn.functional.conv2d(y, weight)


def core_aten_module(model: nn.Module, x: torch.Tensor):
    program = torch.export.export(model.eval(), (x,)).run_decompositions()
    return unlift(make_engine_program(program, "test").exported)


def dequantize_nodes(module):
    """Those of activations."""
    nodes = [node for node in module.graph.nodes if "dequantize" in str(node.target)]
    return [node for node in nodes if node.args[0].op != "get_attr"]


BETWEEN = {
    "nothing": lambda y, model: y,
    "pooling": lambda y, model: nn.functional.max_pool2d(y, 2),
    "transpose": lambda y, model: y.transpose(2, 3),
    "scaling": lambda y, model: y * 2,
    "two branches": lambda y, model: torch.cat([y, y.flip(2)], 3),
}


@pytest.mark.parametrize("zero_point", [0, -3])
@pytest.mark.parametrize("between", BETWEEN.values(), ids=BETWEEN)
def test_dequantizing_before_a_convolution_gives_the_same_values(zero_point, between):
    torch.manual_seed(0)
    model, x = Dequantized(zero_point, between), torch.randn(1, 4, 8, 8)
    module = core_aten_module(model, x)
    assert dequantize_nodes(module)
    rewrite(module, QUANTIZED_CONVOLUTION)
    assert not dequantize_nodes(module)
    torch.testing.assert_close(module(x)[0], model(x), atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("between", sampled(BETWEEN))
def test_a_quantized_convolution_builds(between):
    model = Dequantized(0, BETWEEN[between]).eval()
    program = torch.export.export(model, (torch.randn(1, 4, 8, 8),))
    lower(program, builder="tensorrt_rtx")


def test_dequantizing_before_a_product_stays_a_layer():
    model = Dequantized(0, lambda y, model: model.linear(y))
    module = core_aten_module(model, torch.randn(1, 4, 8, 8))
    rewrite(module, QUANTIZED_CONVOLUTION)
    assert len(dequantize_nodes(module)) == 1
