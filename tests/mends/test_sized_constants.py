"""Constants whose sizes depend on their values are computed at the export."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim, export

from tests.support.programs.operator_networks import lower_and_compare
from trt_et.mends.sized_constants import compute_sized_constants

EDGES = torch.tensor([[0, 1, 2, 3, 2], [1, 2, 2, 0, 2]])


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("edges", EDGES)
        self.register_buffer("shape", torch.tensor([2, 2]))
        self.linear = nn.Linear(4, 8)


class Graph(Layer):
    """As torch_geometric adds the remaining loops of a graph that is a constant."""

    def forward(self, x: Tensor) -> Tensor:
        edges = self.edges[:, self.edges[0] != self.edges[1]]
        loops = torch.arange(4)
        source, target = torch.cat([edges, torch.stack([loops, loops])], 1)
        return torch.zeros(4, 8).index_add(0, target, self.linear(x)[source])


class Indices(Layer):
    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x)[(self.edges[0, :4] > 1).nonzero().flatten()] * 2


class Sizes(Layer):
    """As SigLIP 2 reads the sizes of images from a tensor."""

    def forward(self, x: Tensor) -> Tensor:
        height, width = self.shape.tolist()
        torch._check(height * width == 4)
        return self.linear(x).reshape(height, width, 8).sum(0)


class Batch(Layer):
    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x)[:, self.edges[0][self.edges[1] > 0]]


X = torch.randn(4, 4)
CASES = {
    "graph": (Graph(), (X,), None),
    "indices": (Indices(), (X,), None),
    "sizes": (Sizes(), (X,), None),
    "beside a dynamic batch": (Batch(), (torch.randn(2, 4, 4),), ({0: Dim("b", min=1, max=8)},)),
}


@pytest.mark.parametrize("name", CASES)
def test_the_program_is_one_engine_and_equals_eager(name):
    model, inputs, sizes = CASES[name]
    program = export(model.eval(), inputs, dynamic_shapes=sizes)
    torch.testing.assert_close(compute_sized_constants(program).module()(*inputs), model(*inputs))
    _, partitioner = lower_and_compare(program)
    assert len(partitioner.report.partitions) == 1
    assert not partitioner.report.tensors_not_delegated


def test_sizes_that_depend_on_inputs_stay():
    program = export(nn.Sequential(nn.ReLU()), (X,))
    assert compute_sized_constants(program) is program

    class Chosen(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x[x > 0] * 2

    program = export(Chosen(), (X,))
    assert compute_sized_constants(program) is program
