"""Sizes that partitions compute themselves, and those that stay outside."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.export import Dim

from tests.support.lowering import lower
from tests.support.simulated_gpus import load_runtime
from trt_et import TensorRTPartitioner


class Function(nn.Module):
    def __init__(self, function) -> None:
        super().__init__()
        self.function = function
        self.layer = nn.Conv2d(3, 4, 3, padding=1, stride=2)

    def forward(self, x):
        return self.function(self.layer(x), x)


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


CASES = {
    f.__name__: f
    for f in (
        flattened,
        flattened_after_the_cpu,
        returned,
        on_both_sides_of_the_cpu,
        counted_down,
    )
}
PARTITIONS = {
    "flattened": 1,
    "flattened_after_the_cpu": 2,
    "returned": 1,
    "on_both_sides_of_the_cpu": 2,
    "counted_down": 1,
}


def exported(name: str) -> torch.export.ExportedProgram:
    sizes = {0: Dim("b", max=4), 2: Dim("h", min=4, max=16), 3: Dim("w", min=4, max=16)}
    return torch.export.export(
        Function(CASES[name]), (torch.randn(2, 3, 8, 6),), dynamic_shapes=((sizes),)
    )


@pytest.mark.parametrize("name", CASES)
def test_it_runs_at_every_size(name):
    from executorch.runtime import Runtime

    load_runtime()
    program = exported(name)
    partitioner = TensorRTPartitioner(builder="reference", excluded_ops=[torch.ops.aten.cumsum])
    pte = lower(program, partitioner=partitioner)
    assert len(partitioner.report.partitions) <= PARTITIONS[name]
    method = Runtime.get().load_program(pte).load_method("forward")
    for shape in ((2, 3, 8, 6), (1, 3, 4, 4), (4, 3, 16, 16)):
        x = torch.randn(*shape)
        expected = program.module()(x)
        expected = expected if isinstance(expected, tuple) else (expected,)
        for found, want in zip(method.execute([x]), expected, strict=True):
            torch.testing.assert_close(
                torch.as_tensor(found), torch.as_tensor(want), atol=1e-3, rtol=1e-3
            )


def test_a_tensor_in_the_middle_is_flattened_inside():
    partitioner = TensorRTPartitioner(builder="reference")
    report = partitioner.explain(exported("flattened"))
    assert not report.not_delegated
    (part,) = report.partitions
    assert len(part.inputs) == len(part.outputs) == 1
    assert "aten::sym_size.int" in part.operators


def test_sizes_do_not_make_a_partition_worth_an_engine():
    (part,) = TensorRTPartitioner(builder="reference").explain(exported("flattened")).partitions
    tensors = [op for op in part.operators if "::" in op and "sym_size" not in op]
    assert len(tensors) < len(part.operators)
    for smallest, count in ((len(tensors), 1), (len(tensors) + 1, 0)):
        partitioner = TensorRTPartitioner(builder="reference", min_block_size=smallest)
        assert len(partitioner.explain(exported("flattened")).partitions) == count
