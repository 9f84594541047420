"""The networks of ``where`` and of numbers beyond int32 compute what eager computes."""

from __future__ import annotations

import pytest
import torch

from tests.support.programs.operator_networks import (
    WHOLE,
    X,
    assert_network_equals_eager,
    assert_one_engine,
)

CASES = {
    **{
        f"a choice of {dtype}": (torch.where, (X > 0, (9 * X).to(dtype), (9 * X[0]).to(dtype)))
        for dtype in (torch.bfloat16, torch.float16, torch.int32, torch.bool)
    },
    "a number beyond int32 added": (lambda x: x + (1 << 40), (WHOLE,)),
    "a number beyond int32 compared": (lambda x: x * 3 > -(1 << 40), (WHOLE,)),
    "a number beyond int32 to divide by": (lambda x: x % (1 << 40), (WHOLE,)),
    "a number beyond int32 among floats": (lambda x: x * (1 << 40), (X,)),
    "bounds beyond int32": (lambda x: x.clamp(0, 1 << 40), (WHOLE,)),
    "a choice of int64": (lambda x: torch.where(x > 0, x * (1 << 40), x), (WHOLE,)),
    "a choice between dtypes": (lambda x, y: torch.where(y > 0, x, y), (WHOLE, X.half())),
    "a choice of a number": (lambda x: torch.where(x > 0, x, 0.5), (X.bfloat16(),)),
    "a choice of numbers alone": (lambda x: torch.where(x > 0, 2.5, -1.0), (X.bfloat16(),)),
    "half of a mask": (lambda x: x.masked_fill(x > 0, -0.5), (X.bfloat16(),)),
}
BUILT = (
    "a number beyond int32 added",
    "bounds beyond int32",
    "a choice of int64",
    "a choice of torch.bfloat16",
    "a choice of torch.bool",
)


@pytest.mark.parametrize("case", CASES)
def test_the_network_equals_eager(case):
    assert_network_equals_eager(*CASES[case])


@pytest.mark.parametrize("case", BUILT)
def test_an_engine_is_built(case):
    assert_one_engine(*CASES[case])
