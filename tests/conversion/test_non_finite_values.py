"""An infinity, or a NaN, reaches what it reaches in eager, and nothing else."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional as F

from tests.support.lowering import request
from tests.support.models import Function
from tests.support.network_evaluator import evaluate
from trt_et.engines.serialize import build_network

aten = torch.ops.aten
G = torch.Generator().manual_seed(0)
IMAGE = torch.randn(1, 2, 6, 7, generator=G)
ROWS = torch.randn(6, 5, generator=G)
INDEX = torch.tensor([2, 0, 2, 3, 3, 2])
BAGS = torch.tensor([0, 2, 3])


def resized(mode: str, by: float | tuple[float, float] = 1.3):
    return lambda x: F.interpolate(x, scale_factor=by, mode=mode)


CASES = {
    "averaged 6 x 7 to 4 x 4": (lambda x: F.adaptive_avg_pool2d(x, 4), IMAGE),
    "averaged to more": (lambda x: F.adaptive_avg_pool2d(x, (5, 10)), IMAGE),
    "averaged along one dimension": (lambda x: F.adaptive_avg_pool2d(x, (6, 4)), IMAGE),
    "a line averaged": (lambda x: F.adaptive_avg_pool1d(x, 4), IMAGE[0]),
    "a volume averaged": (lambda x: F.adaptive_avg_pool3d(x, (1, 4, 3)), IMAGE),
    "area": (resized("area"), IMAGE),
    "bilinear": (resized("bilinear"), IMAGE),
    "bilinear, smaller": (resized("bilinear", (0.7, 1.0)), IMAGE),
    "linear": (resized("linear"), IMAGE[0]),
    "bicubic": (resized("bicubic"), IMAGE),
    "bicubic, smaller": (resized("bicubic", (0.6, 1.7)), IMAGE),
    "nearest": (resized("nearest"), IMAGE),
    "bilinear in float16": (resized("bilinear"), IMAGE.half()),
    "rows added": (lambda x: torch.zeros(4, 5).index_add(0, INDEX, x), ROWS),
    "rows taken away": (lambda x: torch.ones(4, 5).index_add(0, INDEX, x, alpha=-2), ROWS),
    "rows scattered": (
        lambda x: torch.zeros(4, 5).scatter_add(0, INDEX[:, None].expand(6, 5), x),
        ROWS,
    ),
    "numbers scattered": (
        lambda x: torch.zeros(6, 5).scatter_add(1, INDEX.expand(6, 6)[:, :5], x),
        ROWS,
    ),
    "rows put on others": (lambda x: aten.index_put(torch.zeros(4, 5), [INDEX], x, True), ROWS),
    "bags": (lambda x: F.embedding_bag(INDEX, x, BAGS, mode="sum"), ROWS),
    "powers that are roots": (lambda x: x**0.5, ROWS),
    "powers that are reciprocals of roots": (lambda x: x**-0.5, ROWS),
    "means of bags": (lambda x: F.embedding_bag(INDEX, x, BAGS, mode="mean"), ROWS),
}


def inputs(example: torch.Tensor) -> list[torch.Tensor]:
    """One number at the edge and one inside, then both, then two that cancel each other."""
    found = []
    last = example.numel() - 1
    for values in (
        {0: math.inf},
        {last // 2: -math.inf},
        {last: math.nan},
        {0: -math.inf, last // 2: math.inf, last: math.inf},
        {last // 2: math.inf, last // 2 + 1: -math.inf},
    ):
        x = example.clone()
        for place, value in values.items():
            x.view(-1)[place] = value
        found.append(x)
    return [example, *found]


@pytest.mark.parametrize("case", CASES)
def test_what_is_not_finite_stays_where_eager_has_it(case):
    function, example = CASES[case]
    network = build_network(request(Function(function), example))
    (name,) = [network.network.get_input(i).name for i in range(network.network.num_inputs)]
    precision = 2e-2 if example.dtype == torch.float16 else 1e-5
    for x in inputs(example):
        (found,) = evaluate(network, {name: x})
        expected = function(x)
        torch.testing.assert_close(found, expected, rtol=precision, atol=precision, equal_nan=True)
