"""Biases of products that are split: TensorRT-RTX 1.5 does not build them if they are repeated."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tests.support.lowering import lower
from tests.support.network_evaluator.comparison import compare
from tests.support.programs.kv_cache_models import recorded
from tests.support.sampled import ALL
from trt_et.conversion.installed import installed_variant

pytestmark = pytest.mark.skipif(
    installed_variant() != "tensorrt_rtx", reason="torch-tensorrt-rtx is not installed"
)


def check(model: nn.Module, x: torch.Tensor, *, is_built: bool) -> None:
    (request,) = recorded(model, (x,))[0]
    assert compare(request, x).outcome == "equal"
    if is_built or ALL:
        lower(torch.export.export(model.eval(), (x,)), builder="tensorrt_rtx")


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


@pytest.mark.parametrize("split", ["split", "slice"])
@pytest.mark.parametrize("product", ["linear", "addmm", "matmul", "mm"])
def test_a_fused_projection_is_right_and_builds(product, split):
    is_built = (product, split) in (("linear", "split"), ("mm", "slice"))
    check(FusedProjection(product, split), torch.randn(1, 12, 32), is_built=is_built)


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
def test_a_selected_projection_is_right_and_builds(product, permuted):
    is_built = (product, permuted) == ("linear", True)
    check(SelectedProjection(product, permuted), torch.randn(1, 17, 32), is_built=is_built)
