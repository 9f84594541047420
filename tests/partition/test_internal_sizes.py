"""Sizes that partitions compute themselves, and those that stay outside."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.export import Dim

from tests.support.lowering import lower, reference
from tests.support.models import Unary
from tests.support.simulated_gpus import check, load_method


def flattened(y, x):
    return y.relu().flatten(1) * 2


def flattened_after_the_cpu(y, x):
    return y.cumsum(2).flatten(1) * 2 + x.sum()


def returned(y, x):
    return y.flatten(2).sin(), y.shape[2] * y.shape[3]


def on_both_sides_of_the_cpu(y, x):
    z = torch.cumsum(y.flatten(2).sin(), 1)
    return z.reshape(y.shape[0], 4, y.shape[2], y.shape[3]).cos()


def counted_down(y, x):
    z = y.relu()
    return torch.arange(z.shape[2] - 1, -z.shape[2], -1)[:, None].float() * z.mean()


def counted_after_the_cpu(y, x):
    """The second partition takes a tensor of h * w columns, and nothing that has h or w."""
    z = torch.cumsum(y.flatten(2).sin(), 1)
    return z * torch.arange(z.shape[2])


def exported(function) -> torch.export.ExportedProgram:
    layer = nn.Conv2d(3, 4, 3, padding=1, stride=2)
    sizes = {0: Dim("b", max=4), 2: Dim("h", min=4, max=16), 3: Dim("w", min=4, max=16)}
    model = Unary(lambda x: function(layer(x), x))
    model.layer = layer
    return torch.export.export(model, (torch.randn(2, 3, 8, 6),), dynamic_shapes=(sizes,))


@pytest.mark.parametrize(
    ("function", "partitions"),
    [
        (flattened, 1),
        pytest.param(flattened_after_the_cpu, 2, marks=pytest.mark.long),
        pytest.param(returned, 1, marks=pytest.mark.long),
        (on_both_sides_of_the_cpu, 2),
        (counted_after_the_cpu, 2),
        pytest.param(counted_down, 1, marks=pytest.mark.long),
    ],
)
def test_it_runs_at_every_size(function, partitions):
    program = exported(function)
    partitioner = reference(excluded_ops=[torch.ops.aten.cumsum])
    method = load_method(lower(program, partitioner=partitioner))
    assert len(partitioner.report.partitions) <= partitions
    for shape in ((2, 3, 8, 6), (1, 3, 4, 4), (4, 3, 16, 16)):
        x = torch.randn(*shape)
        expected = program.module()(x)
        expected = expected if isinstance(expected, tuple) else (expected,)
        for found, want in zip(method.execute([x]), expected, strict=True):
            torch.testing.assert_close(
                torch.as_tensor(found), torch.as_tensor(want), atol=1e-3, rtol=1e-3
            )


def test_a_tensor_in_the_middle_is_flattened_inside_and_sizes_are_not_worth_an_engine():
    program = exported(flattened)
    report = reference().explain(program)
    assert not report.not_delegated
    (part,) = report.partitions
    assert len(part.inputs) == len(part.outputs) == 1
    assert "aten::sym_size.int" in part.operators
    tensors = [op for op in part.operators if "::" in op and "sym_size" not in op]
    assert len(tensors) < len(part.operators)
    for smallest, count in ((len(tensors), 1), (len(tensors) + 1, 0)):
        assert len(reference(min_block_size=smallest).explain(program).partitions) == count


def test_a_power_of_a_size_is_computed_inside():
    layer = nn.Linear(4, 3).requires_grad_(requires_grad=False)
    model = Unary(lambda x: torch.einsum("bsi,bsj->bij", layer(x), layer(x)).flatten(1))
    model.layer = layer
    batch = Dim("b", max=4)
    sizes = ({0: batch, 1: 2 * batch},)
    program = torch.export.export(model, (torch.randn(2, 4, 4),), dynamic_shapes=sizes)
    pte = lower(program, full_graph=True)
    check(pte, model, (torch.randn(2, 4, 4),), (torch.randn(4, 8, 4),))


@pytest.mark.long
def test_a_power_of_a_size_behind_the_cpu_is_computed_inside():
    def model(x):
        y = (x @ x.t()).tanh().flatten().reshape(-1, x.shape[0]) @ x * 0.1
        front, back = x.chunk(2)
        z = torch.cumsum(front * back, 0)
        halves = (y * z.sum()).chunk(2)
        return [part * (half + z) for part, half in zip(halves, x.chunk(2), strict=True)]

    sizes = ({0: 6 * Dim("k", max=3)},)
    function = Unary(model)
    program = torch.export.export(function, (torch.randn(12, 4),), dynamic_shapes=sizes)
    pte = lower(program, excluded_ops=[torch.ops.aten.cumsum])
    check(pte, function, (torch.randn(6, 4),), (torch.randn(18, 4),))
