"""Rewrites change what TensorRT-RTX is given, never what it computes."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tests.lowering_helpers import lower
from trt_et.builders.network import unlift
from trt_et.builders.rewrites import add_bias_behind_split
from trt_et.lowering import lower_partition


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


def module_of(model: nn.Module, *inputs: torch.Tensor):
    program = torch.export.export(model.eval(), inputs).run_decompositions({})
    return unlift(lower_partition(program, "test").program)


@pytest.mark.parametrize(("product", "split"), CASES)
def test_a_bias_behind_a_split_gives_the_same_values(product, split):
    torch.manual_seed(0)
    model, x = FusedProjection(product, split), torch.randn(1, 12, 32)
    module = module_of(model, x)
    add_bias_behind_split(module)
    assert [n for n in module.graph.nodes if "_bias_" in str(n.target)]
    torch.testing.assert_close(module(x)[0], model(x), atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize(("product", "split"), CASES)
def test_a_fused_projection_builds(product, split):
    program = torch.export.export(FusedProjection(product, split).eval(), (torch.randn(1, 12, 32),))
    lower(program, builder="tensorrt_rtx")


@pytest.mark.parametrize(
    "function",
    [
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
    add_bias_behind_split(module)
    assert str(module.graph) == before
