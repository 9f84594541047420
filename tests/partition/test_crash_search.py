"""on_crash="split": partitions around what ends the process of the builder."""

from __future__ import annotations

import logging

import pytest
import torch
from torch import nn
from torch.export import Dim

from tests.support.executors import Inline
from tests.support.lowering import blobs, lower
from tests.support.models import Function
from tests.support.programs.crashing_builders import CrashingOn, Refusing
from trt_et import TensorRTPartitioner
from trt_et.errors import BuildCrashed


def exported(model, *inputs, **options) -> torch.export.ExportedProgram:
    model = model if isinstance(model, nn.Module) else Function(model)
    return torch.export.export(model.eval(), inputs, **options)


def waves(x):
    return x.tanh().neg().relu().abs().sigmoid()


def split(program, *crashing: str, **options) -> tuple[TensorRTPartitioner, bytes, Inline]:
    """Lower with builds that fail, as after a crash, where all of some operators are together."""
    executor = Inline()
    partitioner = TensorRTPartitioner(
        builder=Refusing(*crashing), on_crash="split", executor=executor, **options
    )
    return partitioner, lower(program, partitioner=partitioner), executor


def operators(partitioner: TensorRTPartitioner) -> list[list[str]]:
    return [
        [name.removeprefix("aten::").partition(".")[0] for name in part.operators]
        for part in partitioner.report.partitions
    ]


def test_operators_that_crash_together_are_delegated_apart(caplog):
    with caplog.at_level(logging.WARNING, "trt_et"):
        partitioner, pte, executor = split(
            exported(waves, torch.ones(3)), "aten.tanh.default", "aten.sigmoid.default"
        )
    assert operators(partitioner) == [["tanh", "neg", "relu", "abs"], ["sigmoid"]]
    assert partitioner.report.not_delegated == ()
    assert len(blobs(pte)) == 2
    assert "a partition of 5 nodes, from aten_tanh_default to aten_sigmoid" in caplog.text
    assert "delegated in 2 smaller partitions" in caplog.text
    # The whole, three halvings, the two parts; and nothing again once the partitions are fixed.
    assert len(executor.requests) <= 6


def test_an_operator_that_crashes_alone_stays_on_the_cpu(caplog):
    with caplog.at_level(logging.WARNING, "trt_et"):
        partitioner, pte, _ = split(exported(waves, torch.ones(3)), "aten.relu.default")
    assert operators(partitioner) == [["tanh", "neg"], ["abs", "sigmoid"]]
    ((name, operator, why),) = partitioner.report.not_delegated
    assert (name, operator) == ("aten_relu_default", "aten::relu.default")
    assert why == "its build ends the process of the builder"
    assert len(blobs(pte)) == 2
    assert "left to the CPU, because the builder ends its process" in caplog.text
    # The name that is given is one that excluded_ops takes.
    assert "excluded_ops=['relu']" in caplog.text
    again = TensorRTPartitioner(builder="reference", excluded_ops=["relu"])
    lower(exported(waves, torch.ones(3)), partitioner=again)
    assert operators(again) == operators(partitioner)


def test_other_partitions_stay_as_they_are():
    def model(x):
        return torch.cumsum(x.tanh().abs(), 0).relu().sigmoid().neg()

    program = exported(model, torch.ones(3))
    partitioner, _, _ = split(
        program, "aten.relu.default", "aten.sigmoid.default", excluded_ops=["aten.cumsum"]
    )
    assert operators(partitioner) == [["tanh", "abs"], ["relu"], ["sigmoid", "neg"]]
    assert [part.name for part in partitioner.report.partitions] == [
        "tensorrt_0",
        "tensorrt_1",
        "tensorrt_2",
    ]


def test_parts_below_min_block_size_stay_on_the_cpu():
    partitioner, _, _ = split(
        exported(waves, torch.ones(3)), "aten.tanh.default", "aten.neg.default", min_block_size=2
    )
    assert operators(partitioner) == [["neg", "relu", "abs", "sigmoid"]]


class Linear(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        return self.second(torch.relu(self.first(x)))


def test_an_operator_without_a_cpu_kernel_is_an_error_that_says_what_to_exclude():
    program = exported(Linear(), torch.ones(2, 4))
    with pytest.raises(
        BuildCrashed, match=r"no aten\.linear\.default.*again with excluded_ops=\['linear'\]"
    ):
        split(program, "aten.linear.default")
    partitioner, _, _ = split(program, "aten.linear.default", excluded_ops=["linear"])
    assert all("linear" not in part for part in operators(partitioner))


def test_trial_engines_have_the_weights_and_are_used():
    program = exported(Linear(), torch.ones(2, 4))
    executor = Inline()
    partitioner = TensorRTPartitioner(
        builder=Refusing("nothing"), on_crash="split", executor=executor
    )
    assert lower(program, partitioner=partitioner) == lower(program)
    assert len(executor.requests) == 1


def test_a_cut_parts_no_size_from_the_tensor_that_it_is_read_off():
    def model(x):
        y = torch.relu(x)
        return torch.tanh(y.reshape(y.shape[0] * 2, -1)).sigmoid()

    batch = Dim("batch", min=1, max=8)
    program = exported(model, torch.ones(3, 4), dynamic_shapes=[({0: batch},)])
    partitioner, pte, _ = split(program, "aten.relu.default", "aten.sigmoid.default")
    assert len(blobs(pte)) == 2
    assert partitioner.report.tensors_not_delegated == ()


def test_a_partition_in_a_branch_is_cut_too():
    def model(x):
        return torch.cond(x.sum() > 0, lambda x: waves(x), lambda x: x.neg(), (x,))

    partitioner, _, _ = split(
        exported(model, torch.ones(3)), "aten.tanh.default", "aten.sigmoid.default"
    )
    parts = partitioner.report.partitions
    assert [len(part.nodes) for part in parts if part.subgraph == "cond/true"] == [4, 1]


def test_a_process_that_aborts_is_searched_like_one_that_says_so():
    program = exported(waves, torch.ones(3))
    options = {"min_block_size": 4, "on_crash": "split"}
    partitioner = TensorRTPartitioner(
        builder=CrashingOn("aten.tanh.default", "aten.sigmoid.default"), **options
    )
    lower(program, partitioner=partitioner)
    assert operators(partitioner) == [["tanh", "neg", "relu", "abs"]]
