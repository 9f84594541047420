"""Equal partitions have equal requests and equal engines, wherever they are and whatever names."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tests.support.lowering import blobs, lower
from tests.support.programs.kv_cache_models import Recorder
from trt_et.inspection import inspect_program


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 8)
        self.norm = nn.LayerNorm(8)

    def forward(self, x):
        return self.norm(torch.relu(self.first(x)) + x)


class Repeated(nn.Module):
    """One block, used twice, with something between that no engine holds."""

    def __init__(self) -> None:
        super().__init__()
        self.block = Block()

    def forward(self, x):
        return self.block(torch.cumsum(self.block(x), 1))


def lower_repeated(builder, model=None, **options):
    model = (model or Repeated()).eval()
    program = torch.export.export(model, (torch.randn(2, 8),))
    return lower(program, builder=builder, excluded_ops=[torch.ops.aten.cumsum], **options)


def test_names_say_nothing_of_where_a_partition_is():
    recorder = Recorder()
    lower_repeated(recorder, nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8)))
    (request,) = recorder.requests
    assert [node.name for node in request.lowered.program.graph.nodes] == [
        "constant0",
        "constant1",
        "constant2",
        "constant3",
        "input0",
        "linear_0",
        "relu_0",
        "linear_1",
        "output",
    ]
    assert set(request.lowered.program.state_dict) == {f"constant{i}" for i in range(4)}
    assert [binding.name for binding in request.lowered.bindings] == ["input0", "output0"]
    assert request.lowered.names["linear_1"] == "aten_linear_default_1"
    assert set().union(*(node.meta for node in request.lowered.program.graph.nodes)) == {"val"}


@pytest.mark.parametrize("builder", ["reference", "tensorrt_rtx"])
def test_an_engine_that_is_needed_twice_is_stored_once(builder):
    pte = lower_repeated(builder)
    first, second = blobs(pte)
    assert first == second
    assert pte.count(first) == 1


def test_equal_blocks_with_other_weights_are_other_engines():
    model = nn.Sequential(Block(), Block())
    model.forward = lambda x: model[1](torch.cumsum(model[0](x), 1))
    pte = lower_repeated("reference", model)
    first, second = blobs(pte)
    assert first != second
    assert len(inspect_program(pte)[0].delegates) == 2
