"""A dynamic size may be 0: nothing was found, and nothing is computed of it."""

from __future__ import annotations

import torch
from torch.export import Dim

from tests.support.lowering import lower
from tests.support.models import Function
from tests.support.network_evaluator.comparison import ComparingBuilder, Verdict
from trt_et import TensorRTPartitioner


def test_a_network_takes_tensors_without_elements():
    def scaled(x):
        half = x[: x.shape[0] // 2] * 2
        # TensorRT broadcasts [n, 1] to [1, 1, n, 1]: a reshape to a computed shape.
        return half[None, None] * (half.sum(1, keepdim=True) + 1)

    n = Dim("n", min=1, max=9)
    program = torch.export.export(
        Function(scaled), (torch.rand(3, 5),), dynamic_shapes=(({0: n},),)
    )
    verdicts: list[Verdict] = []
    lower(program, partitioner=TensorRTPartitioner(builder=ComparingBuilder(verdicts)))
    assert [verdict.outcome for verdict in verdicts] == ["equal"], verdicts
