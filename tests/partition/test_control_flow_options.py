"""Options, devices, reports and messages in the branches and bodies of control flow."""

from __future__ import annotations

import logging

import pytest
import torch
from torch import nn

from tests.support.lowering import blobs, delegate_tensor_devices, reference
from tests.support.programs.control_flow_models import (
    Sigmoid,
    case,
    lowered,
    signed,
)
from tests.support.simulated_gpus import check
from trt_et.engine_info import parse_device_id
from trt_et.errors import PartitionError

pytestmark = pytest.mark.usefixtures("no_grad")


def test_tensors_of_engines_in_branches_are_labelled_cpu_and_those_outside_with_their_gpu():
    """ExecuTorch's propagation of devices does not enter branches: the delegate copies there."""
    _, _, program = case("cond")
    pte = lowered(program, reference(device="cuda:1"))
    gpu, host = {"cuda:1"}, {"cpu"}
    assert delegate_tensor_devices(pte) == [gpu, host, host, gpu]
    assert [parse_device_id(blob) for blob in blobs(pte)] == [1] * 4


def test_every_branch_may_have_a_gpu_of_its_own():
    model, calls, program = case("cond")
    partitioner = reference(device=lambda part: int(part.subgraph == "cond/false"))
    pte = lowered(program, partitioner)
    found = sorted(parse_device_id(blob) for blob in blobs(pte))
    assert found == [0, 0, 0, 1]
    check(pte, model, *calls)


def test_partitions_are_numbered_in_program_order_and_named_after_their_branch():
    _, _, program = case("cond")
    report = reference().explain(program)
    assert [part.name for part in report.partitions] == [
        "tensorrt_0",
        "tensorrt_1_cond_true",
        "tensorrt_2_cond_false",
        "tensorrt_3",
    ]
    assert all(node.startswith("cond/true/") for node in report.partitions[1].nodes)
    assert "not delegated: cond (cond): control flow stays on the CPU" in str(report)


def test_the_plan_counts_weights_of_a_branch_among_its_inputs():
    _, _, program = case("map")
    (part,) = reference().explain(program).partitions
    assert part.constant_bytes == 0
    assert sum(tensor.nbytes for tensor in part.inputs) == 4 * (8 + 8 + 16 + 4)


def test_min_block_size_counts_in_each_branch():
    torch.manual_seed(0)
    model, calls = Sigmoid().eval(), signed((2, 4))
    partitioner = reference(min_block_size=3)
    pte = lowered(torch.export.export(model, calls[0]), partitioner)
    # With its number made a tensor the one branch has three operators, the other has two.
    assert "cond/true" in {part.subgraph for part in partitioner.report.partitions}
    assert "cond/false" not in {part.subgraph for part in partitioner.report.partitions}
    small = [name for name, _, why in partitioner.report.not_delegated if "min_block_size=3" in why]
    assert [name for name in small if name.startswith("cond/")] == [
        "cond/false/aten_tanh_default",
        "cond/false/aten_mul_tensor",
    ]
    check(pte, model, *calls)


@pytest.mark.parametrize(
    ("excluded", "out"),
    [
        ("aten.mul", {"", "cond/true", "cond/false"}),
        ("cond/true/aten_mul_tensor", {"cond/true"}),
    ],
)
def test_operators_are_excluded_everywhere_and_nodes_of_one_branch_by_their_path(excluded, out):
    _, _, program = case("cond")
    report = reference(excluded_ops=[excluded]).explain(program)
    names = [name for name, _, why in report.not_delegated if "excluded by the caller" in why]
    assert {name.rpartition("/")[0] for name in names} == out


def test_full_graph_lists_what_stays_out_in_branches_too():
    _, _, program = case("nested")
    partitioner = reference(full_graph=True, excluded_ops=["aten.tanh"])
    with pytest.raises(PartitionError) as caught:
        lowered(program, partitioner)
    assert "cond/true/cond/false/aten_tanh_default (aten::tanh.default): its operator" in str(
        caught.value
    )
    assert "cond/true/cond (cond): control flow" in str(caught.value)


def test_progress_and_the_log_name_the_branch(caplog):
    _, _, program = case("cond")
    events = []
    with caplog.at_level(logging.DEBUG, "trt_et"):
        lowered(program, reference(progress=events.append, excluded_ops=["aten.tanh"]))
    assert {"tensorrt_1_cond_true", "tensorrt_2_cond_false"} <= {e.partition for e in events}
    assert "partition tensorrt_1_cond_true: reference engine" in caplog.text
    assert "cond/false/aten_tanh_default (aten::tanh.default) stays on the CPU" in caplog.text


def test_equal_branches_share_an_engine():
    class Alike(nn.Module):
        def forward(self, x):
            y = torch.cond(x.sum() > 0, lambda a: a.tanh() + a, torch.sin, (x,))
            return torch.cond(x.sum() > 1, lambda a: a.tanh() + a, torch.cos, (y,))

    built = []
    program = torch.export.export(Alike(), (torch.randn(2, 4),))
    pte = lowered(program, reference(progress=built.append))
    assert len(blobs(pte)) == 5
    assert len(set(blobs(pte))) == 4
