"""Programs whose inputs are not all tensors."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tests.support.lowering import lower, reference
from tests.support.simulated_gpus import load_method


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3))

    def forward(self, x, factor, unused=None):
        return (x * self.weight).relu() * factor


@pytest.mark.parametrize("given", [(2,), (2.5, None)], ids=repr)
def test_a_program_with_a_python_value_among_its_inputs_is_one_engine(given):
    model, args = Scaled(), (torch.randn(3), *given)
    partitioner = reference()
    pte = lower(torch.export.export(model, args), partitioner=partitioner)
    assert len(partitioner.report.partitions) == 1
    assert [tensor.name for tensor in partitioner.report.partitions[0].inputs] == ["x"]
    (result,) = load_method(pte).execute(list(args))
    torch.testing.assert_close(result, model(*args))
