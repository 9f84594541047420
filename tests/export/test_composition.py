"""Programs that hold more than engines: state, other backends, ourselves twice."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tests.support.lowering import finish, reference
from tests.support.models import make
from tests.support.simulated_gpus import check
from trt_et.engine_info import parse_device_id
from trt_et.inspection import inspect_program

pytestmark = pytest.mark.usefixtures("no_grad")


def test_ourselves_twice_on_two_gpus():
    model, inputs = make("mlp")
    first = reference(device="cuda:0", excluded_ops=["aten.linear", "aten.addmm"])
    done = finish(torch.export.export(model, inputs), first, reference(device="cuda:1"))
    pte = bytes(done.buffer)
    (method,) = inspect_program(pte)
    assert {parse_device_id(delegate.blob) for delegate in method.delegates} == {0, 1}
    check(pte, model, inputs)


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
    pte = bytes(finish(torch.export.export(model, inputs), partitioner).buffer)
    (delegate,) = inspect_program(pte)[0].delegates
    assert delegate.backend_id == "TensorRTBackend"
    assert not partitioner.report.not_delegated  # Not even what uses a weight that is returned.
    check(pte, model, inputs)
