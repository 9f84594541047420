"""The networks of convolutions, norms and softmax compute what eager computes."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tests.support.programs.operator_networks import (
    IMAGE,
    LINE,
    X,
    assert_network_equals_eager,
    assert_one_engine,
    randn,
)

aten = torch.ops.aten

CASES = {
    "bfloat16 convolved": (nn.Conv2d(4, 6, 3).bfloat16(), (IMAGE.bfloat16(),)),
    "bfloat16 deconvolved": (nn.ConvTranspose2d(4, 6, 3).bfloat16(), (IMAGE.bfloat16(),)),
    "bfloat16 scaled": (nn.BatchNorm2d(4).bfloat16().eval(), (IMAGE.bfloat16(),)),
    "instance norm": (lambda x: F.instance_norm(x), (IMAGE,)),
    "instance norm with weights": (
        lambda x, w, b: F.instance_norm(x, weight=w, bias=b),
        (IMAGE, randn(4), randn(4)),
    ),
    "statistics of a layer norm": (
        lambda x: aten.native_layer_norm(x, [4, 5], None, None, 0.1),
        (X,),
    ),
    **{
        f"logarithms of a softmax in {dtype}": (
            lambda x: x.log_softmax(1),
            ((X * 200).to(dtype),),
        )
        for dtype in (torch.float32, torch.float16, torch.bfloat16)
    },
    "softmax of a line": (lambda x: x.softmax(0), (LINE,)),
    "a norm that is one number": (lambda x: x.norm(), (X,)),
    "a line deconvolved by a given weight": (
        lambda x, w: F.conv_transpose1d(x, w, LINE[:6], stride=2, padding=2),
        (X, randn(4, 6, 3)),
    ),
    "a line deconvolved in groups": (
        lambda x, w: F.conv_transpose1d(x, w, stride=3, output_padding=1, padding=1, groups=2),
        (X, randn(4, 3, 3)),
    ),
}
BUILT = (
    "instance norm",
    "a line deconvolved by a given weight",
    "a line deconvolved in groups",
)


@pytest.mark.parametrize("case", CASES)
def test_the_network_equals_eager(case):
    assert_network_equals_eager(*CASES[case])


@pytest.mark.parametrize("case", BUILT)
def test_an_engine_is_built(case):
    assert_one_engine(*CASES[case])
