"""Residual sums in float32 are computed in the kernel of the product in float16 before them."""

from __future__ import annotations

import re
from collections import Counter

import pytest
import torch
from torch import nn
from torch.export import Dim

from tests.support.lowering import blobs, lower
from tests.support.mended import leave_out
from tests.support.network_evaluator.comparison import compare
from tests.support.programs.kv_cache_models import recorded
from tests.support.programs.quantized_networks import needs_rtx
from trt_et.conversion.operators.products import RESIDUAL_SUM
from trt_et.engine_info import decode_blob
from trt_et.engines.serialize import build_network

pytestmark = needs_rtx

LAYERS = 4


class Stream(nn.Module):
    """Layers that each add a product to a stream, before or after a normalization."""

    def __init__(self, *, norm_first: bool) -> None:
        super().__init__()
        self.products = nn.ModuleList(nn.Linear(32, 32) for _ in range(LAYERS))
        self.norms = nn.ModuleList(nn.LayerNorm(32) for _ in range(LAYERS))
        self.last = nn.LayerNorm(32)
        self.norm_first = norm_first

    def forward(self, x):
        for product, norm in zip(self.products, self.norms, strict=True):
            x = x + product(norm(x)) if self.norm_first else norm(product(x) + x)
        return self.last(x)


def kernels(x: torch.Tensor, *, norm_first: bool) -> Counter[bytes]:
    """The normalizations among the kernel sources of an engine, by name."""
    program = torch.export.export(Stream(norm_first=norm_first).eval(), (x,))
    (blob,) = blobs(lower(program, builder="tensorrt_rtx", precision="float16"))
    names = re.findall(rb"__global__ void (\w+)", decode_blob(blob).engine)
    return Counter(name for name in names if b"Mean" in name)


@pytest.mark.parametrize(
    ("norm_first", "batch"), [pytest.param(True, 1, marks=pytest.mark.long), (True, 2), (False, 2)]
)
def test_an_engine_holds_the_kernel_of_a_normalization_once(batch, norm_first):
    found = kernels(torch.randn(batch, 6, 32), norm_first=norm_first)
    assert set(found.values()) == {1}
    assert len(found) < LAYERS


@pytest.mark.usefixtures("registry_is_put_back")
def test_otherwise_tensorrt_rtx_holds_it_for_each_layer():
    leave_out([RESIDUAL_SUM.name])
    assert max(kernels(torch.randn(2, 6, 32), norm_first=True).values()) == LAYERS - 2


@pytest.mark.parametrize(
    ("shape", "precision"),
    [
        ((1, 6, 32), "float16"),
        ((2, 6, 32), "bfloat16"),
        pytest.param((1, 2, 3, 32), "float16", marks=pytest.mark.long),
    ],
)
def test_the_sums_are_the_same(shape, precision):
    x = torch.randn(shape)
    (asked,) = recorded(Stream(norm_first=True).eval(), (x,), precision=precision)[0]
    assert compare(asked, x).outcome == "equal"
    assert shuffles(asked) > 0


def shuffles(asked) -> int:
    network = build_network(asked, "tensorrt_rtx").network
    layers = [network.get_layer(index) for index in range(network.num_layers)]
    return sum("reshape" in layer.name for layer in layers)


@pytest.mark.parametrize(
    ("precision", "sizes"),
    [(None, None), pytest.param("float16", {0: Dim("batch", max=8)}, marks=pytest.mark.long)],
)
def test_float32_and_dynamic_sizes_stay_as_they_are(precision, sizes):
    x = torch.randn(2, 6, 32)
    options = {"precision": precision, "dynamic_shapes": sizes and (sizes,)}
    (asked,) = recorded(Stream(norm_first=True).eval(), (x,), **options)[0]
    assert shuffles(asked) == 0
