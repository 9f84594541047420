"""The networks of arithmetic on every dtype compute what eager computes."""

from __future__ import annotations

import math
from math import inf, nan

import pytest
import torch

from tests.support.programs.operator_networks import (
    BY,
    CLOSE,
    SMALL,
    WHOLE,
    X,
    assert_network_equals_eager,
    assert_one_engine,
)

DIVIDENDS = torch.tensor([2, 1e6, -2, 3.5, -3.5, 0, 7.25, 1e10, -1e30, 3e38, 0.3, inf, -inf, nan])
DIVISORS = torch.tensor([0.1, -0.1, 1, -7, 3e38, inf, -inf, 0, nan])
NUMBERS = (0.1, -0.1, 2.0, -0.5, 2 * math.pi, 7, inf, -inf)

CASES = {
    "remainder of integers by a float": (lambda x: torch.remainder(x, 2.5), (SMALL,)),
    "remainder of bfloat16": (torch.remainder, (X.bfloat16() * 9, X.bfloat16() + 1)),
    "remainder of float16 by a number": (lambda x: torch.fmod(x, 0.7), (X.half() * 9,)),
    **{
        f"{name} of {dtype}": (function, (DIVIDENDS.to(dtype), DIVISORS.to(dtype)))
        for dtype in (torch.float32, torch.float16, torch.bfloat16)
        for name, function in {
            "remainder": lambda x, y: torch.remainder(x[:, None], y),
            "fmod": lambda x, y: torch.fmod(x[:, None], y),
            "remainder by numbers": lambda x, y: [x % n + y[0] for n in NUMBERS],
            "fmod by numbers": lambda x, y: [x.fmod(n) + y[0] for n in NUMBERS],
            "remainder of numbers": lambda x, y: [n % y + x[0] for n in NUMBERS],
        }.items()
    },
    "remainder of int32": (torch.remainder, (SMALL, BY.int())),
    "fmod of int32": (torch.fmod, (SMALL, BY.int())),
    "integers to a float power": (lambda x: torch.pow(x, 1.5), (SMALL,)),
    "integers equal to a float": (lambda x: x == 2.5, (WHOLE,)),
    "integers at least a float": (lambda x: x >= 2.5, (WHOLE,)),
    "bfloat16 truncated": (torch.trunc, (X.bfloat16() * 9,)),
    "the part behind the point": (torch.frac, (X * 9,)),
    "truncated quotient": (lambda x, y: torch.div(x, y, rounding_mode="trunc"), (X, X + 1)),
    "truncated quotient of int32": (
        lambda x, y: torch.div(x, y, rounding_mode="trunc"),
        (SMALL, BY.int()),
    ),
    "truncated quotient by a number": (
        lambda x: torch.div(x, -3, rounding_mode="trunc"),
        (WHOLE,),
    ),
    "exponentials of int64": (torch.exp, (WHOLE,)),
    "sigmoids of int32": (torch.sigmoid, (SMALL,)),
    "int64 rounded up": (torch.ceil, (WHOLE,)),
    "booleans added": (torch.add, (X > 0, X > 1)),
    "booleans at most others": (lambda x, y: x.clamp_max(y), (X > 0, X > 1)),
    "integers between floats": (lambda x: x.clamp(-1.5, 2.5), (WHOLE,)),
    "negative of int32": (torch.neg, (CLOSE,)),
    "logarithms of bfloat16 above 1": (torch.log1p, (X.bfloat16().abs() / 99,)),
    "logarithms of integers above 1": (torch.log1p, (SMALL.abs(),)),
    **{
        f"{name} of a number": (function, (torch.tensor(2.5), torch.tensor(-1.0)))
        for name, function in {
            "choice": lambda x, y: torch.where(x > y, x, y),
            "angle": torch.atan2,
            "sums": lambda x, y: x.sum() + y.mean() + x.prod(),
            "extremes": lambda x, y: torch.stack([x.amax(), y.max(), x.min()]),
            "softmax": lambda x, y: x.softmax(0) + y.log_softmax(-1),
            "order": lambda x, y: x.sort(0)[0] + y.topk(1)[0],
            "selection": lambda x, y: x.index_select(0, (y + 1).long().reshape(1)),
            "gathering": lambda x, y: x.gather(0, (y + 1).long()),
        }.items()
    },
    "signs of booleans": (torch.sign, (X > 0,)),
}
BUILT = (
    "booleans added",
    "exponentials of int64",
    "truncated quotient of int32",
)


@pytest.mark.parametrize("case", CASES)
def test_the_network_equals_eager(case):
    assert_network_equals_eager(*CASES[case])


@pytest.mark.parametrize("case", BUILT)
def test_an_engine_is_built(case):
    assert_one_engine(*CASES[case])
