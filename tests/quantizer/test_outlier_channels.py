"""Channels with much larger ranges than the others are scaled down before a linear layer."""

from __future__ import annotations

import torch
from torch import nn

from tests.support.programs.pt2e import quantize, quantizer, scales
from trt_et.quantizer import int8


class Projections(nn.Module):
    """Two linear layers with one input, as the projections of attention."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(16, 8), nn.Linear(16, 4, bias=False)

    def forward(self, x):
        return self.first(x), self.second(x)


def inputs(factor: float) -> tuple[torch.Tensor]:
    torch.manual_seed(0)
    x = torch.randn(64, 16)
    x[:, 3] *= factor
    return (x,)


def error(model: nn.Module, x: tuple[torch.Tensor], **how) -> float:
    program = quantize(model, x, quantizer(int8(**how)))
    pairs = zip(program.module()(*x), model(*x), strict=True)
    return max(float((found - want).abs().max() / want.abs().max()) for found, want in pairs)


def test_an_outlier_channel_costs_the_others_no_precision():
    torch.manual_seed(0)
    model = Projections().eval()
    model.first.weight.data[:, 3] = model.second.weight.data[:, 3] = 0.001
    x = inputs(100)
    assert error(model, x) < 0.05
    assert error(model, x, calibration="entropy") > 0.1  # No scaling, for comparison.


def test_layers_with_one_input_share_its_factors():
    program = quantize(Projections(), inputs(100))
    assert program.graph_module.code.count("aten.mul.Tensor") == 1
    assert scales(program, "linear")[0] == scales(program, "linear_1")[0] < 0.2


def test_similar_channels_are_not_scaled():
    assert "aten.mul" not in quantize(Projections(), inputs(1)).graph_module.code


def test_a_weight_that_has_another_use_is_not_scaled():
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(8, 16)

        def forward(self, x):
            tokens = self.embedding(torch.tensor([1, 2]))
            return nn.functional.linear(x, self.embedding.weight), tokens

    program = quantize(Tied(), inputs(100))
    assert "aten.mul" not in program.graph_module.code


def test_an_input_with_another_use_is_not_scaled():
    class Both(Projections):
        def forward(self, x):
            return self.first(x), x @ x.mT

    program = quantize(Both(), inputs(100))
    assert "aten.mul" not in program.graph_module.code
    assert scales(program, "linear")[0] in scales(program, "matmul")


def test_the_input_of_a_linear_layer_may_be_a_vector():
    layer, x = nn.Linear(16, 8), torch.randn(16)
    found = quantize(layer, (x,)).module()(x)
    torch.testing.assert_close(found, layer(x), atol=0.05, rtol=0)
