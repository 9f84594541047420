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


def resized(x: torch.Tensor, mode: str, by: float | tuple[float, float] = 1.3) -> torch.Tensor:
    return F.interpolate(x, scale_factor=by, mode=mode)


CASES = {
    "averages": (
        lambda x: [
            F.adaptive_avg_pool2d(x, 4),
            F.adaptive_avg_pool2d(x, (5, 10)),
            F.adaptive_avg_pool2d(x, (6, 4)),
            F.adaptive_avg_pool1d(x[0], 4),
            F.adaptive_avg_pool3d(x, (1, 4, 3)),
            resized(x, "area"),
        ],
        IMAGE,
    ),
    "resized": (
        lambda x: [
            resized(x, "bilinear"),
            resized(x, "bilinear", (0.7, 1.0)),
            resized(x[0], "linear"),
            resized(x, "bicubic"),
            resized(x, "bicubic", (0.6, 1.7)),
            resized(x, "nearest"),
        ],
        IMAGE,
    ),
    "resized in float16": (lambda x: [resized(x, "bilinear")], IMAGE.half()),
    "rows": (
        lambda x: [
            torch.zeros(4, 5).index_add(0, INDEX, x),
            torch.ones(4, 5).index_add(0, INDEX, x, alpha=-2),
            torch.zeros(4, 5).scatter_add(0, INDEX[:, None].expand(6, 5), x),
            torch.zeros(6, 5).scatter_add(1, INDEX.expand(6, 6)[:, :5], x),
            aten.index_put(torch.zeros(4, 5), [INDEX], x, True),
        ],
        ROWS,
    ),
    "bags": (
        lambda x: [F.embedding_bag(INDEX, x, BAGS, mode=mode) for mode in ("sum", "mean")],
        ROWS,
    ),
    "powers that are roots": (lambda x: [x**0.5, x**-0.5], ROWS),
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
        found, expected = list(evaluate(network, {name: x})), function(x)
        torch.testing.assert_close(found, expected, rtol=precision, atol=precision, equal_nan=True)
