"""Results that differ are seen to differ."""

from __future__ import annotations

import torch

from tests.support.network_evaluator.comparison import difference


def test_the_comparison_sees_what_differs():
    assert difference(torch.tensor([1, 2]), torch.tensor([1, 3]), 1e-4)
    assert difference(torch.zeros(1), torch.zeros(()), 1e-4)
    assert difference(torch.tensor([float("nan")]), torch.zeros(1), 1e-4)
    assert not difference(torch.tensor([1.0, float("nan")]), torch.tensor([1.0, float("nan")]), 0.0)
