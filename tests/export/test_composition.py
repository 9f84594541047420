"""Inputs that are no tensors, and outputs that no engine makes."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tests.support.lowering import lower, reference
from tests.support.simulated_gpus import check, load_method
from trt_et.inspection import inspect_program


@pytest.mark.usefixtures("no_grad")
def test_outputs_that_are_inputs_weights_or_duplicates():
    class Returns(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(3))
            self.register_buffer("used", torch.arange(3.0))

        def forward(self, x, unused):
            y = (x * 2).relu() + self.used
            return x, y, y, self.weight, self.used, y.view(-1)

    model = Returns().eval()
    inputs = (torch.randn(3), torch.randn(2))
    partitioner = reference()
    pte = lower(torch.export.export(model, inputs), partitioner=partitioner)
    (delegate,) = inspect_program(pte)[0].delegates
    assert delegate.backend_id == "TensorRTBackend"
    assert not partitioner.report.not_delegated  # Not even what uses a weight that is returned.
    check(pte, model, inputs)


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
