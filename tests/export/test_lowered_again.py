"""One exported program can be lowered any number of times, by any partitioner."""

from __future__ import annotations

import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import to_edge_transform_and_lower
from torch import nn

from trt_et import TensorRTPartitioner


class FirstRows(nn.Module):
    """As many rows as a tensor says."""

    def forward(self, x, n):
        count = n.item()
        torch._check(count >= 1)
        torch._check(count <= x.shape[0])
        return (x[:count] * 2).relu() + (x * 3).tanh()[:count]


def test_a_size_that_depends_on_data_is_lowered_again_and_by_others():
    program = torch.export.export(FirstRows(), (torch.randn(8, 3), torch.tensor(3)))
    written = []
    for partitioner in (
        TensorRTPartitioner(builder="reference"),
        XnnpackPartitioner(),
        TensorRTPartitioner(builder="reference"),
    ):
        lowered = to_edge_transform_and_lower(program, partitioner=[partitioner])
        written.append(bytes(lowered.to_executorch().buffer))
    assert written[0] == written[2]
