"""The networks of reductions and sorting compute what eager computes."""

from __future__ import annotations

import pytest
import torch

from tests.support.programs.operator_networks import (
    CLOSE,
    LINE,
    SMALL,
    WHOLE,
    X,
    assert_network_equals_eager,
    assert_one_engine,
)

CASES = {
    "sum of int32": (lambda x: x.sum(), (SMALL,)),
    "product of int32": (lambda x: x.prod(1), (SMALL,)),
    "largest of int32": (lambda x: x.amax(1), (SMALL,)),
    "place of the largest int32": (lambda x: x.argmax(1), (CLOSE,)),
    **{
        f"extremes of {name} and their positions": (
            lambda x: (*x.max(1), *x.min(-1, keepdim=True), x.min(0)[1]),
            (x,),
        )
        for name, x in {"floats": X, "bfloat16": X.bfloat16(), "int32": CLOSE}.items()
    },
    "extremes of a line and their positions": (lambda x: (*x.max(0), *x.min(-1)), (LINE,)),
    "largest of booleans": (lambda x: x.amax(1), (X > 0,)),
    "whether a number is anything": (lambda x: torch.any(x[0, 0, 0]), (WHOLE.float(),)),
    "largest of a line": (lambda x: x.topk(3)[0], (LINE,)),
    "a line in order": (lambda x: x.sort(0, descending=True)[0], (LINE,)),
}
BUILT = (
    "largest of int32",
    "product of int32",
    "place of the largest int32",
    "a line in order",
    "extremes of int32 and their positions",
)


@pytest.mark.parametrize("case", CASES)
def test_the_network_equals_eager(case):
    assert_network_equals_eager(*CASES[case])


@pytest.mark.parametrize("case", BUILT)
def test_an_engine_is_built(case):
    assert_one_engine(*CASES[case])
