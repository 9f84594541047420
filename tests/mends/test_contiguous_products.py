"""Layers that take slices keep the range of a dynamic size, whatever the example's strides are."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.export import Dim

from tests.support.lowering import lower
from tests.support.models import Unary
from tests.support.sampled import sampled
from tests.support.simulated_gpus import check


def sliced(x: torch.Tensor) -> torch.Tensor:
    """With a batch of two, the stride of the step before is that of a contiguous tensor."""
    return torch.cat([x, x * 2], -1)[..., :8]


LINEAR, RECURRENT = nn.Linear(8, 5), nn.RNN(8, 4, batch_first=True)
LAYERS = {
    "linear": lambda x: LINEAR(sliced(x).transpose(0, 1)),
    "matmul": lambda x: (sliced(x).transpose(0, 1) @ LINEAR.weight.mT).relu(),
    "rnn": lambda x: RECURRENT(sliced(x))[0],
}


@pytest.mark.parametrize("name", sampled(LAYERS, 3))
def test_a_batch_of_any_size_runs(name):
    model = Unary(LAYERS[name])
    model.linear, model.recurrent = LINEAR, RECURRENT
    dynamic = ({0: Dim("batch", min=1, max=4)},)
    program = torch.export.export(model, (torch.randn(2, 2, 8),), dynamic_shapes=dynamic)
    check(lower(program), model, *((torch.randn(size, 2, 8),) for size in (2, 1, 4)))
