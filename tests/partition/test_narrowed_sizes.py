"""A warning of the sizes that ExecuTorch narrows, and that it does narrow them."""

from __future__ import annotations

import pytest
import torch
from executorch.exir import to_edge_transform_and_lower
from torch import nn
from torch.export import Dim

from trt_et import TensorRTPartitioner


def planned(model: nn.Module, example: tuple[int, ...], dims: dict[int, tuple[int, int]]):
    """Return the sizes that memory is planned for, of the program's input."""
    ranges = {dim: Dim.AUTO(min=low, max=high) for dim, (low, high) in dims.items()}
    program = torch.export.export(model.eval(), (torch.rand(example),), dynamic_shapes=(ranges,))
    partitioner = TensorRTPartitioner(builder="reference")
    manager = to_edge_transform_and_lower(program, partitioner=[partitioner]).to_executorch()
    plan = manager.executorch_program.execution_plan[0]
    return plan.values[plan.inputs[0]].val.sizes


CASES = {
    "elements": (
        nn.Conv1d(32, 8, 3),
        (1, 32, 50),
        {2: (4, 1000)},
        [1, 32, 640],
        "2 to at most 640",
    ),
    "batch": (nn.Conv2d(3, 6, 1), (2, 3, 4, 4), {0: (1, 32)}, [15, 3, 4, 4], "0 to at most 15"),
    "transposed": (
        *(nn.ConvTranspose2d(3, 6, 1), (2, 3, 4, 4), {0: (1, 32), 2: (4, 8)}),
        *([15, 3, 8, 4], "0 to at most 15"),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_size_that_executorch_narrows_is_named(name, caplog):
    model, example, dims, sizes, said = CASES[name]
    # Once this fails for all, ExecuTorch narrows nothing any more and the warning can go.
    assert planned(model, example, dims) == sizes
    warnings = [message for message in caplog.messages if "will narrow" in message]
    assert len(warnings) == 1
    assert f"narrow dimension {said}, not" in warnings[0]


@pytest.mark.parametrize(
    ("model", "example", "dims"),
    [
        (nn.Conv1d(32, 8, 3), (1, 32, 641), {2: (4, 1000)}),
        (nn.Conv2d(3, 6, 1), (16, 3, 4, 4), {0: (1, 32)}),
        (nn.Linear(8, 2), (3, 8), {0: (1, 4096)}),
        (nn.Conv2d(3, 6, 1), (2, 3, 4, 4), {}),
    ],
)
def test_a_size_that_stays_is_not(model, example, dims, caplog):
    maxima = [dims[dim][1] if dim in dims else size for dim, size in enumerate(example)]
    assert planned(model, example, dims) == maxima
    assert not [message for message in caplog.messages if "will narrow" in message]
