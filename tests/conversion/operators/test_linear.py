"""Biases of products that are split: added after the split, and the same."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tests.support.lowering import lower, module_of
from trt_et.conversion.operators.linear import SPLIT_LINEAR
from trt_et.conversion.prepare import rewrite


class FusedProjection(nn.Module):
    """Attention whose queries, keys and values are one product with a bias, split by last axis."""

    def __init__(self, product: str, split: str) -> None:
        super().__init__()
        self.linear = nn.Linear(32, 64)
        self.product = product
        self.split = split

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight, bias = self.linear.weight, self.linear.bias
        if self.product == "linear":
            y = self.linear(x)
        elif self.product == "addmm":
            y = torch.addmm(bias, x.view(-1, 32), weight.t()).view(1, 12, 64)
        elif self.product == "matmul":
            y = x @ weight.t() + bias
        else:
            y = torch.mm(x.view(-1, 32), weight.t()).view(1, 12, 64) + bias
        # Twice as many query heads as key and value heads.
        if self.split == "slice":
            q, k, v = y[..., :32], y[..., 32:48], y[..., -16:]
        else:
            q, k, v = y.split([32, 16, 16], dim=-1)
        q = q.reshape(1, 12, 2, 16).transpose(1, 2)
        k, v = (t.reshape(1, 12, 1, 16).transpose(1, 2) for t in (k, v))
        return (q @ k.transpose(2, 3)).softmax(-1) @ v


CASES = [(p, s) for p in ("linear", "addmm", "matmul", "mm") for s in ("split", "slice")]


@pytest.mark.parametrize(("product", "split"), CASES)
def test_a_bias_behind_a_split_gives_the_same_values(product, split):
    torch.manual_seed(0)
    model, x = FusedProjection(product, split), torch.randn(1, 12, 32)
    module = module_of(model, x)
    rewrite(module, SPLIT_LINEAR)
    assert [n for n in module.graph.nodes if "_bias_" in str(n.target)]
    torch.testing.assert_close(module(x)[0], model(x), atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize(("product", "split"), CASES)
def test_a_fused_projection_builds(product, split):
    program = torch.export.export(FusedProjection(product, split).eval(), (torch.randn(1, 12, 32),))
    lower(program, builder="tensorrt_rtx")


class SelectedProjection(nn.Module):
    """Attention of a vision transformer: one biased product, its parts selected by index."""

    def __init__(self, product: str, permuted: bool) -> None:
        super().__init__()
        self.linear = nn.Linear(32, 96)
        self.product = product
        self.permuted = permuted

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight, bias = self.linear.weight, self.linear.bias
        y = self.linear(x) if self.product == "linear" else x @ weight.t() + bias
        y = y.reshape(1, 17, 3, 4, 8)
        if self.permuted:
            y = y.permute(2, 0, 3, 1, 4)
            q, k, v = y[0], y[1], y[2]
        else:
            q, k, v = (y[:, :, i].permute(0, 2, 1, 3) for i in range(3))
        y = ((q @ k.transpose(-1, -2)) * 0.3).softmax(-1) @ v
        return y.permute(0, 2, 1, 3).reshape(1, 17, 32)


@pytest.mark.parametrize("permuted", [True, False])
@pytest.mark.parametrize("product", ["linear", "matmul"])
def test_a_bias_behind_a_selection_gives_the_same_values_and_builds(product, permuted):
    torch.manual_seed(0)
    model, x = SelectedProjection(product, permuted), torch.randn(1, 17, 32)
    module = module_of(model, x)
    rewrite(module, SPLIT_LINEAR)
    assert [n for n in module.graph.nodes if "_bias_" in str(n.target)]
    torch.testing.assert_close(module(x)[0], model(x), atol=1e-6, rtol=1e-5)
    lower(torch.export.export(model.eval(), (x,)), builder="tensorrt_rtx")


@pytest.mark.parametrize(
    "function",
    [
        lambda y: y.reshape(1, 16, 4, 8).permute(2, 0, 1, 3),  # Heads: nothing is selected.
        lambda y: y.reshape(1, 4, 4, 32)[0],  # Another axis.
        lambda y: (y[..., :8], y),  # The whole is used as well.
        lambda y: y.split(16, dim=1),  # Another axis.
        lambda y: y[..., ::2],  # A step.
        lambda y: y.reshape(-1, 4).split(2, dim=-1),  # Another last axis.
        lambda y: y * 2,
    ],
)
def test_any_other_use_leaves_the_graph_as_it_is(function):
    class Other(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(8, 32)

        def forward(self, x):
            return function(self.linear(x))

    module = module_of(Other(), torch.randn(1, 16, 8))
    before = str(module.graph)
    rewrite(module, SPLIT_LINEAR)
    assert str(module.graph) == before
