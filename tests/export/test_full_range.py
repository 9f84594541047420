"""A program with convolutions runs at every size of the exported range."""

from __future__ import annotations

import copy

import pytest
import torch
from executorch.exir import to_edge_transform_and_lower
from torch import nn
from torch.export import Dim

from tests.support.lowering import reference
from tests.support.models import Function
from tests.support.simulated_gpus import load_method

_CONV = nn.Conv1d(32, 8, 3)
_CHANNELS_LAST = nn.Conv2d(3, 6, 3).to(memory_format=torch.channels_last)

# ExecuTorch narrows each range: torch compares sizes to choose a kernel of the CPU.
CASES = {
    "elements": (_CONV, (1, 32, 50), {2: (4, 1000)}),
    "batch": (nn.Conv2d(3, 6, 1), (2, 3, 4, 4), {0: (1, 32)}),
    "transposed": (nn.ConvTranspose2d(3, 6, 1), (2, 3, 4, 4), {0: (1, 32), 2: (4, 8)}),
    "channels last": (_CHANNELS_LAST, (2, 3, 9, 8), {0: (1, 32), 2: (5, 40)}),
}


def random(model: nn.Module, sizes) -> torch.Tensor:
    x = torch.rand(sizes)
    return x.to(memory_format=torch.channels_last) if model is _CHANNELS_LAST else x


def lower(model: nn.Module, example: tuple[int, ...], dims: dict[int, tuple[int, int]]):
    ranges = {dim: Dim(f"d{dim}", min=low, max=high) for dim, (low, high) in dims.items()}
    if isinstance(model, Function):
        ranges = (ranges,)
    inputs = (random(model, example),)
    program = torch.export.export(model.eval(), inputs, dynamic_shapes=(ranges,))
    return to_edge_transform_and_lower(program, partitioner=[reference()])


@pytest.mark.parametrize("name", CASES)
def test_the_largest_and_the_smallest_inputs_run(name):
    model, example, dims = CASES[name]
    # ExecuTorch copies delegates; its verifier reads the copy.
    method = load_method(copy.deepcopy(lower(model, example, dims)).to_executorch().buffer)
    for end in (1, 0):
        sizes = [dims[dim][end] if dim in dims else size for dim, size in enumerate(example)]
        x = random(model, sizes)
        torch.testing.assert_close(method.execute((x,))[0], model(x), rtol=1e-4, atol=1e-4)


def test_delegates_still_run_in_python():
    model, example, dims = CASES["elements"]
    x = torch.rand(1, 32, 777)
    program = lower(model, example, dims).exported_program().module()
    torch.testing.assert_close(program(x), model(x), rtol=1e-4, atol=1e-4)


def test_a_size_that_executorch_narrows_by_itself_is_named(caplog):
    following = nn.Conv1d(8, 4, 5)
    model = Function(lambda x: following(_CONV(x).double().sin().float()))
    done = lower(model, (1, 32, 50), {2: (8, 1000)}).to_executorch()
    (plan,) = done.executorch_program.execution_plan
    # Once this is 1000, ExecuTorch narrows nothing any more and the warning can go.
    assert plan.values[plan.inputs[0]].val.sizes == [1, 32, 640]
    assert [m for m in caplog.messages if "narrowed dimension 2 of input inputs_0" in m]


def test_a_program_lowered_by_name_keeps_its_operators():
    from executorch.exir import to_edge
    from executorch.exir.backend.backend_api import to_backend

    ranges = {2: Dim("n", min=4, max=1000)}
    program = torch.export.export(_CONV.eval(), (torch.rand(1, 32, 50),), dynamic_shapes=(ranges,))
    edge = to_edge(program).exported_program()
    before = str(edge.graph)
    to_backend("TensorRTBackend", edge, [])
    assert str(edge.graph) == before
