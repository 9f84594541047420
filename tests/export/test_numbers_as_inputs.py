"""Programs whose inputs are not all tensors."""

from __future__ import annotations

import pytest
import torch
from executorch.exir import to_edge_transform_and_lower
from executorch.runtime import Runtime
from torch import nn

from tests.support.simulated_gpus import load_runtime
from trt_et import TensorRTPartitioner


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3))

    def forward(self, x, factor, unused=None):
        return (x * self.weight).relu() * factor


@pytest.mark.parametrize("given", [(2,), (2.5, None)], ids=repr)
def test_a_program_with_a_python_value_among_its_inputs_is_one_engine(given):
    model, args = Scaled(), (torch.randn(3), *given)
    program = torch.export.export(model, args)
    partitioner = TensorRTPartitioner(builder="reference")
    lowered = to_edge_transform_and_lower(program, partitioner=[partitioner]).to_executorch()
    assert len(partitioner.report.partitions) == 1
    assert [tensor.name for tensor in partitioner.report.partitions[0].inputs] == ["x"]
    load_runtime()
    method = Runtime.get().load_program(lowered.buffer).load_method("forward")
    (result,) = method.execute(list(args))
    torch.testing.assert_close(result, model(*args))
