"""Reshapes state their known sizes, and mean the same."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.export import Dim

from tests.support.lowering import lower
from trt_et.conversion.operators.reshape import RESHAPE
from trt_et.conversion.prepare import rewrite
from trt_et.lowering.lowered_partition import unlift


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


@pytest.mark.parametrize("sizes", ["one", "two"])
def test_known_sizes_are_stated_and_the_result_is_the_same(sizes):
    class Views(nn.Module):
        def forward(self, x):
            if sizes == "one":
                return x.view(x.shape[0], -1, 4)
            return x.view(x.shape[0], x.shape[1], -1, 4).transpose(1, 2)

    dynamic = {0: Dim("a", max=9)} | ({1: Dim("b", max=9)} if sizes == "two" else {})
    program = torch.export.export(
        Views(), (torch.randn(3, 2, 8),), dynamic_shapes=(dynamic,)
    ).run_decompositions({})
    module = unlift(program)
    rewrite(module, RESHAPE)
    (view,) = (node for node in module.graph.nodes if node.target == torch.ops.aten.reshape.default)
    assert view.args[1][0 if sizes == "one" else 3] == (-1 if sizes == "one" else 4)
    assert [size for size in view.args[1] if isinstance(size, int) and size > 0] == (
        [4, 4] if sizes == "one" else [2, 4]
    )
    x = torch.randn(5, 2 if sizes == "one" else 7, 8)
    torch.testing.assert_close(module(x)[0], Views()(x))
