"""Rewrites change what TensorRT-RTX is given, never what it computes."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.export import Dim

from tests.support.lowering import lower, module_of
from trt_et.conversion.rewrites.reshape import make_reshape_static
from trt_et.conversion.rewrites.tensorrt_rtx_workarounds import (
    add_bias_after_split,
    dequantize_before_convolution,
)
from trt_et.lowering.lower import lower_partition
from trt_et.lowering.lowered_partition import unlift


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
    add_bias_after_split(module)
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
    add_bias_after_split(module)
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
    add_bias_after_split(module)
    assert str(module.graph) == before


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
    make_reshape_static(module)
    (view,) = (node for node in module.graph.nodes if node.target == torch.ops.aten.reshape.default)
    assert view.args[1][0 if sizes == "one" else 3] == (-1 if sizes == "one" else 4)
    assert [size for size in view.args[1] if isinstance(size, int) and size > 0] == (
        [4, 4] if sizes == "one" else [2, 4]
    )
    x = torch.randn(5, 2 if sizes == "one" else 7, 8)
    torch.testing.assert_close(module(x)[0], Views()(x))


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
    return unlift(lower_partition(program, "test").program)


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
    dequantize_before_convolution(module)
    assert not dequantize_nodes(module)
    torch.testing.assert_close(module(x)[0], model(x), atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("between", BETWEEN.values(), ids=BETWEEN)
def test_a_quantized_convolution_builds(between):
    program = torch.export.export(Dequantized(0, between).eval(), (torch.randn(1, 4, 8, 8),))
    lower(program, builder="tensorrt_rtx")


def test_dequantizing_before_a_product_stays_a_layer():
    model = Dequantized(0, lambda y, model: model.linear(y))
    module = core_aten_module(model, torch.randn(1, 4, 8, 8))
    dequantize_before_convolution(module)
    assert len(dequantize_nodes(module)) == 1
