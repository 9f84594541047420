"""Reshapes state their known sizes."""

from __future__ import annotations

import torch
from torch import nn
from torch.export import Dim

from tests.support.lowering import lower


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
