"""The networks of pooling and resizing compute what eager computes."""

from __future__ import annotations

import pytest
from torch.nn import functional as F

from tests.support.programs.operator_networks import (
    IMAGE,
    assert_network_equals_eager,
    assert_one_engine,
    randn,
)

CASES = {
    **{
        f"largest of windows {options}": (
            lambda x, options=options: F.max_pool2d(x, *options),
            (IMAGE,),
        )
        for options in (
            *((3, 2, 0, 1, True), (3, 2, 1, 1, True), (2, 3, 1, 1, True), ((2, 3), 2, 0, 1, True)),
            *(
                (3, 2, 1, (1, 1), False),
                (3, 1, 1, 2),
                (2, (2, 1), 1, (2, 3), True),
                (1, 2, 0, 1, True),
            ),
        )
    },
    "largest of windows without a batch": (
        lambda x: F.max_pool2d(x, 3, 2, ceil_mode=True),
        (IMAGE[0].half(),),
    ),
    "largest of windows of a volume": (
        lambda x: F.max_pool3d(x, 2, 2, ceil_mode=True),
        (randn(1, 2, 5, 7, 9),),
    ),
    **{
        f"means of windows {options}": (
            lambda x, options=options: F.avg_pool2d(x, *options),
            (IMAGE,),
        )
        for options in (
            *((3, 2, 0, True), (3, 2, 1, True), (3, 2, 1, True, False), (2, 3, 1, True, False)),
            *((3, 2, 1, True, True, 5), ((2, 3), 2, 0, False, True, 3), (2, 2, 0, True, False)),
        )
    },
    "means of windows of a volume": (
        lambda x: F.avg_pool3d(x, 2, 2, ceil_mode=True, count_include_pad=False),
        (randn(1, 2, 5, 7, 9),),
    ),
    "adaptive average": (lambda x: F.adaptive_avg_pool2d(x, (3, 5)), (IMAGE,)),
    "adaptive average of a volume": (
        lambda x: F.adaptive_avg_pool3d(x, (2, 3, 4)),
        (randn(1, 2, 4, 5, 6),),
    ),
    "area": (lambda x: F.interpolate(x, (13, 11), mode="area"), (IMAGE,)),
    "linear by a factor": (
        lambda x: F.interpolate(x, scale_factor=1.7, mode="bilinear"),
        (IMAGE,),
    ),
    "cubic by a factor": (lambda x: F.interpolate(x, scale_factor=0.6, mode="bicubic"), (IMAGE,)),
    "nearest by a factor": (lambda x: F.interpolate(x, scale_factor=1.7), (IMAGE,)),
    "nearest by a whole factor": (lambda x: F.interpolate(x, scale_factor=2), (IMAGE,)),
    "pooling without a batch": (lambda x: F.max_pool2d(x, 2), (IMAGE[0],)),
}
BUILT = (
    "nearest by a factor",
    "largest of windows (3, 2, 1, 1, True)",
    "largest of windows (3, 1, 1, 2)",
    "means of windows (3, 2, 1, True, False)",
    "means of windows of a volume",
    "largest of windows of a volume",
)


@pytest.mark.parametrize("case", CASES)
def test_the_network_equals_eager(case):
    assert_network_equals_eager(*CASES[case])


@pytest.mark.parametrize("case", BUILT)
def test_an_engine_is_built(case):
    assert_one_engine(*CASES[case])
