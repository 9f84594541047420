"""Heads of attentions: split off products with a bias, or beside a dynamic length."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.export import Dim

from tests.support.lowering import lower
from tests.support.network_evaluator.comparison import compare
from tests.support.programs.kv_cache_models import recorded
from tests.support.programs.quantized_networks import needs_rtx

pytestmark = needs_rtx


class FusedProjection(nn.Module):
    """Attention whose queries, keys and values are one product with a bias, split by last axis."""

    def __init__(self, *, sliced: bool) -> None:
        super().__init__()
        self.linear = nn.Linear(32, 64)
        self.sliced = sliced

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        # Twice as many query heads as key and value heads.
        if self.sliced:
            y = torch.mm(x.view(-1, 32), self.linear.weight.t()).view(1, 12, 64) + self.linear.bias
            q, k, v = y[..., :32], y[..., 32:48], y[..., -16:]
        else:
            q, k, v = self.linear(x).split([32, 16, 16], dim=-1)
        q = q.reshape(1, 12, 2, 16).transpose(1, 2)
        k, v = (t.reshape(1, 12, 1, 16).transpose(1, 2) for t in (k, v))
        return (q @ k.transpose(2, 3)).softmax(-1) @ v


class SelectedProjection(nn.Module):
    """Attention of a vision transformer: one biased product, its parts selected by index."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(32, 96)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x).reshape(1, 12, 3, 4, 8).permute(2, 0, 3, 1, 4)
        q, k, v = y[0], y[1], y[2]
        y = ((q @ k.transpose(-1, -2)) * 0.3).softmax(-1) @ v
        return y.permute(0, 2, 1, 3).reshape(1, 12, 32)


@pytest.mark.parametrize(
    "model",
    [FusedProjection(sliced=False), FusedProjection(sliced=True), SelectedProjection()],
    ids=["split", "sliced", "selected"],
)
def test_a_projection_is_right_and_builds(model):
    x = torch.randn(1, 12, 32)
    (request,) = recorded(model, (x,))[0]
    assert compare(request, x).outcome == "equal"
    lower(torch.export.export(model.eval(), (x,)), builder="tensorrt_rtx")


class Heads(nn.Module):
    """Grouped attention whose number of heads is left to be computed beside a dynamic length."""

    def forward(self, x: torch.Tensor, kv: torch.Tensor) -> torch.Tensor:
        length = x.shape[1]
        q = x.view(1, length, -1, 8).transpose(1, 2)
        kv = kv.view(1, 16, 4, 8).transpose(1, 2)
        y = nn.functional.scaled_dot_product_attention(q, kv, kv)
        return y.transpose(1, 2).reshape(1, length, -1)


def test_heads_beside_a_dynamic_length_are_built():
    program = torch.export.export(
        Heads(),
        (torch.randn(1, 5, 32), torch.randn(1, 16, 32)),
        dynamic_shapes=({1: Dim("length", min=1, max=32)}, None),
    )
    lower(program, builder="tensorrt_rtx", full_graph=False)
