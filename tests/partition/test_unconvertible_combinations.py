"""Calls that can be converted one by one, but not together."""

from __future__ import annotations

import logging

import pytest
import torch
import torch.nn.functional as F
from executorch.exir import to_edge
from torch import nn

from tests.support.lowering import blobs, lower, reference
from tests.support.models import Function, Unary
from tests.support.simulated_gpus import check
from trt_et.engines import support_check
from trt_et.errors import PartitionError
from trt_et.graph.fragment import Unsupported

X = torch.randn(2, 3)


CHAIN = Function(lambda x: (torch.sin(x) * 2).exp() + x.cos())


@pytest.fixture
def unconvertible(monkeypatch):
    """Make a partition unconvertible, in the name of an operator of it or of none."""

    def make(operator: str | None, together: str) -> None:
        def check(fragment):
            targets = {str(call.target): call.name for call in fragment.calls}
            if len(fragment.calls) == 1 or not targets.keys() >= {operator or together, together}:
                return None
            return Unsupported("TensorRT refuses the two", targets.get(operator))

        monkeypatch.setattr(support_check, "_KNOWN", {})
        monkeypatch.setattr(support_check, "_default_check", lambda *_: check)

    return make


def exported(model: nn.Module):
    return torch.export.export(model.eval(), (X,))


def test_the_node_that_is_named_stays_on_the_cpu(unconvertible, caplog):
    unconvertible("aten.exp.default", "aten.sin.default")
    partitioner = reference()
    with caplog.at_level(logging.WARNING):
        program = lower(exported(CHAIN), partitioner=partitioner)
    left = {operator: reason for _, operator, reason in partitioner.report.not_delegated}
    assert left == {
        "aten::exp.default": "it cannot be converted with its partition: TensorRT refuses the two"
    }
    assert "aten_exp_default (aten::exp.default) stays on the CPU" in caplog.text
    assert "TensorRT refuses the two" in caplog.text
    check(program, CHAIN, (X,))


def test_a_partition_of_which_no_node_is_named_stays_on_the_cpu(unconvertible):
    unconvertible(None, "aten.sin.default")
    partitioner = reference()
    program = lower(exported(CHAIN), partitioner=partitioner)
    assert blobs(program) == []
    check(program, CHAIN, (X,))


def test_the_operators_that_use_a_named_size_stay_on_the_cpu(unconvertible):
    unconvertible("<built-in function mul>", "aten.sum.dim_IntList")
    size = torch.export.Dim("size", min=2, max=8)
    model = Unary(lambda x: torch.arange(2 * x.shape[0]).float() * x.sum())
    program = torch.export.export(model, (X,), dynamic_shapes=({0: size},))
    partitioner = reference()
    lower(program, partitioner=partitioner)
    left = {operator: reason for _, operator, reason in partitioner.report.not_delegated}
    assert "TensorRT refuses the two" in left["aten::arange.start_step"]
    assert left["mul"] == "it computes a size, not a tensor"
    (partition,) = partitioner.report.partitions
    assert "aten::sum.dim_IntList" in partition.operators


def test_a_node_without_a_cpu_kernel_gets_an_engine_of_its_own(unconvertible, caplog):
    unconvertible("aten.linear.default", "aten.exp.default")
    times_two, exp = Function(lambda x: x * 2), Function(lambda x: x.exp() + 1)
    model = nn.Sequential(times_two, nn.Linear(3, 3), exp)
    partitioner = reference()
    with caplog.at_level(logging.WARNING):
        program = lower(exported(model), partitioner=partitioner)
    assert [p.operators for p in partitioner.report.partitions][1] == ("aten::linear.default",)
    assert "gets a separate engine" in caplog.text
    check(program, model, (X,))


def test_full_graph_refuses(unconvertible):
    unconvertible("aten.exp.default", "aten.sin.default")
    with pytest.raises(PartitionError, match="TensorRT refuses the two"):
        lower(exported(CHAIN), full_graph=True)


def test_an_operator_that_cannot_be_converted_does_not_end_an_export():
    cases = {
        "ten dimensions inside": (
            lambda x: x.repeat(1, 1, 2, 1, 1) + 1,
            torch.randn(1, 2, 3, 2, 2),
        ),
        "nine dimensions": (lambda x: (x.reshape(1, 1, 1, 1, 1, 1, 1, 2, 3) * 2).sum(-1) + 1, X),
        "groups of numbers": (lambda x: F.group_norm(x * 2, 1), torch.randn(3, 4)),
        "one volume": (lambda x: F.avg_pool3d(x * 2, 2), torch.randn(3, 4, 4, 4)),
    }
    for name, (function, x) in cases.items():
        program = torch.export.export(Function(function), (x,))
        assert blobs(lower(program, builder="tensorrt_rtx")), name


def buckets(x):
    """Look up a table by an index that is computed from constants, as T5 does."""
    index = torch.arange(x.shape[0]).float() / 8.0
    return x * 2 + F.embedding(index.to(torch.int64), torch.ones(2, 3))


def positions(x):
    """Gather at an offset that is a constant, as Funnel does."""
    places = torch.arange(8, -8, -1)[:, None] + 16
    table = torch.arange(32).float()[:, None] * torch.ones(1, 3)
    return x * 2 + table.gather(0, places.expand(16, 3))


def chunks(x):
    """Divide constants by an integer, as Llama 4 does."""
    return x * 2 + (torch.arange(16) // 4)[:, None]


@pytest.mark.parametrize(
    ("function", "operator"),
    [
        (buckets, "aten::embedding.default"),
        (positions, "aten::gather.default"),
        (chunks, "aten::div.Tensor_mode"),
    ],
)
def test_a_constant_that_is_not_known_yet_does_not_split_a_partition(function, operator):
    program = torch.export.export(Function(function), (torch.randn(16, 3),))
    partitioner = reference()
    # Of an exported program, a pass folds such constants.
    to_edge(program).to_backend(partitioner)
    (partition,) = partitioner.report.partitions
    assert operator in partition.operators
