"""Engines in the branches of ``cond`` and the bodies of ``map`` and ``scan`` run like eager."""

from __future__ import annotations

import logging

import pytest
import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import to_edge
from torch import nn
from torch._higher_order_ops.while_loop import while_loop
from torch.nn import functional

from tests.support.lowering import blobs, delegate_tensor_devices, reference, target_devices
from tests.support.models import Function
from tests.support.programs.control_flow_models import CASES, Sigmoid, case, lowered, signed
from tests.support.sampled import sampled
from tests.support.simulated_gpus import check
from trt_et import TensorRTMemoryPlanningPass, TensorRTPartitioner
from trt_et.engine_info import parse_device_id
from trt_et.errors import PartitionError
from trt_et.inspection import inspect_program

pytestmark = pytest.mark.usefixtures("no_grad")


@pytest.mark.parametrize("name", sampled(CASES, 8))
def test_all_operators_in_branches_go_to_engines_and_run_like_eager(name, caplog):
    model, calls, program = case(name)
    partitioner = reference(device="cuda:1")
    pte = lowered(program, partitioner)
    assert "is wrong if it is read" not in caplog.text
    left = {operator for _, operator, _ in partitioner.report.not_delegated}
    # The copy is of a constant, for an operand of control flow: no work for an engine.
    copy = "dim_order_ops::_clone_dim_order.default"
    assert left <= {"cond", "map_impl", "scan", "getitem", "aten::sym_size.int", copy}
    places = [part.subgraph for part in partitioner.report.partitions]
    assert CASES[name][2] in (None, places)
    assert target_devices(pte) == [[b"cuda:1"]] * len(places)
    check(pte, model, *calls)


@pytest.mark.parametrize("name", sampled(["state", "state_written_later", "read_after_loops"]))
def test_what_branches_read_and_make_is_right_with_our_memory_planning(name):
    model, calls, program = case(name)
    pte = lowered(program, reference(device="cuda:1"), planning=TensorRTMemoryPlanningPass())
    check(pte, model, *calls)


def test_results_that_later_control_flow_overwrites_are_reported_where_nothing_copied_them(caplog):
    _, _, program = case("read_later")
    with caplog.at_level(logging.WARNING):
        to_edge(program).to_backend(reference())
    assert "the result of cond is wrong if it is read after cond_1" in caplog.text
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        lowered(program, reference(), reference())
    assert "is wrong if it is read" not in caplog.text


@pytest.mark.long
def test_a_program_of_two_partitions_in_a_branch_runs():
    def torn(x):
        return torch.cond(x.sum() > 0, lambda a: torch.cumsum(a * 2, 1).relu() + 1, torch.sin, (x,))

    calls = signed((2, 4))
    partitioner = reference(excluded_ops=[torch.ops.aten.cumsum])
    pte = lowered(torch.export.export(Function(torn), calls[0]), partitioner)
    places = [part.subgraph for part in partitioner.report.partitions]
    assert places == ["", "cond/true", "cond/true", "cond/false"]
    check(pte, torn, *calls)


def test_an_operator_that_a_branch_must_decompose_is_decomposed_everywhere():
    """A preserved operator has no CPU kernel, so every one of its calls must be in an engine."""

    def double(x):
        y = functional.softplus(x)
        return torch.cond(
            x.sum() > 0, lambda a: functional.softplus(a.double()).float(), torch.sin, (y,)
        )

    calls = signed((2, 4))
    partitioner = reference()
    pte = lowered(torch.export.export(Function(double), calls[0]), partitioner)
    assert any(
        name.startswith("cond/true/") and "torch.float64" in why
        for name, _, why in partitioner.report.not_delegated
    )
    check(pte, double, *calls)


def test_what_while_loop_holds_stays_on_the_cpu_and_says_why(caplog):
    def loop(x):
        y = functional.softplus(x)
        return while_loop(
            lambda i, a: i < 3, lambda i, a: (i + 1, functional.softplus(a)), (x[0, 0] * 0, y)
        )[1]

    program = torch.export.export(Function(loop), (torch.randn(2, 4),))
    report = reference().explain(program)
    assert "while_loop is a while_loop, and ExecuTorch 1.5 runs none" in caplog.text
    assert [part.subgraph for part in report.partitions] == [""]
    reasons = {n: why for n, _, why in report.not_delegated if n.startswith("while_loop/body/")}
    assert reasons
    assert set(reasons.values()) == {"ExecuTorch lowers nothing inside of while_loop"}
    # Had the call in the body been preserved, nothing could run it.
    assert not any("softplus" in operator for _, operator, _ in report.not_delegated)


@pytest.mark.parametrize("first", sampled(["ours", "xnnpack"], 2))
def test_branches_work_with_xnnpack_before_and_behind(first):
    torch.manual_seed(0)
    model, calls = Sigmoid().eval(), signed((2, 4))
    ours = reference(excluded_ops=["aten.sigmoid"])
    order = [ours, XnnpackPartitioner()] if first == "ours" else [XnnpackPartitioner(), ours]
    pte = lowered(torch.export.export(model, calls[0]), *order)
    backends = [delegate.backend_id for delegate in inspect_program(pte)[0].delegates]
    assert backends.count("TensorRTBackend") >= 3
    assert "XnnpackBackend" in backends
    check(pte, model, *calls)


@pytest.mark.long
def test_branches_are_lowered_further_by_ourselves():
    model, calls, program = case("cond")
    first, second = reference(excluded_ops=["aten.tanh", "aten.relu"]), reference(device="cuda:1")
    manager = to_edge(program).to_backend(first).to_backend(second)
    pte = bytes(manager.to_executorch().buffer)
    (method,) = inspect_program(pte)
    assert [d.problem for d in method.delegates] == [""] * len(method.delegates)
    assert [d.engine.device_id for d in method.delegates].count(1) == 2
    assert not {"aten::tanh.out", "aten::relu.out"} & set(method.cpu_operators)
    check(pte, model, *calls)


def test_results_of_a_delegate_in_a_branch_are_not_delegated_again():
    """ExecuTorch leaves its tags on them, and our second lowering has a partition of that name."""

    def results(which, x):
        return torch.cond(which, lambda a: a.relu() * (a + 1).tanh(), torch.sin, (x,))

    calls = [(torch.tensor(which), torch.randn(2, 4)) for which in (True, False)]
    first = reference(excluded_ops=["aten.tanh", "aten.mul"])
    pte = lowered(
        torch.export.export(Function(results), calls[0]), first, reference(device="cuda:1")
    )
    names = [part.name for part in first.report.partitions]
    assert names == ["tensorrt_0_cond_true", "tensorrt_1_cond_false"]
    assert [parse_device_id(blob) for blob in blobs(pte)] == [0, 1, 0]
    check(pte, results, *calls)


@pytest.mark.long
def test_a_weight_in_lists_of_several_partitions_stays_with_the_cpu():
    """ExecuTorch gives each partition a copy of a weight, but not of one in a list of tensors."""

    class Lists(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(2, 4))

        def forward(self, x):
            y = torch.cat([x * self.weight, self.weight])
            z = torch.cat([torch.cumsum(y, 0), self.weight]).relu()
            return torch.cond(x.sum() > 0, lambda a: a + self.weight[0], torch.sin, (z,))

    torch.manual_seed(0)
    model, calls = Lists(), signed((2, 4))
    partitioner = reference(excluded_ops=[torch.ops.aten.cumsum])
    pte = lowered(torch.export.export(model, calls[0]), partitioner)
    reasons = {op: why for _, op, why in partitioner.report.not_delegated}
    assert "it shares a weight in a tensor list" in reasons["aten::cat.default"]
    check(pte, model, *calls)


@pytest.mark.parametrize("name", sampled(["layers", "map"], 2))
def test_tensorrt_rtx_builds_the_engines_of_branches(name):
    """Weights are inputs there, which its converters must take."""
    pytest.importorskip("tensorrt_rtx")
    _, _, program = case(name)
    pte = lowered(program, TensorRTPartitioner(builder="tensorrt_rtx"))
    delegates = inspect_program(pte)[0].delegates
    assert [d.problem for d in delegates] == [""] * len(CASES[name][2])
    assert {d.engine.builder for d in delegates} == {"tensorrt_rtx"}


@pytest.mark.long
def test_branches_have_gpus_of_their_own_and_tensors_on_the_host():
    """ExecuTorch's propagation of devices does not enter branches: the delegate copies there."""
    model, calls, program = case("cond")
    partitioner = reference(device=lambda part: int(part.subgraph != "cond/false"))
    pte = lowered(program, partitioner)
    assert sorted(parse_device_id(blob) for blob in blobs(pte)) == [0, 1, 1, 1]
    gpu, host = {"cuda:1"}, {"cpu"}
    assert delegate_tensor_devices(pte) == [gpu, host, host, gpu]
    check(pte, model, *calls)
    report = partitioner.report
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


@pytest.mark.long
def test_min_block_size_counts_in_each_branch():
    torch.manual_seed(0)
    model, calls = Sigmoid().eval(), signed((2, 4))
    partitioner = reference(min_block_size=3)
    pte = lowered(torch.export.export(model, calls[0]), partitioner)
    # With its number made a tensor the one branch has three operators, the other has two.
    assert [p.subgraph for p in partitioner.report.partitions if p.subgraph] == ["cond/true"]
    small = [name for name, _, why in partitioner.report.not_delegated if "min_block_size=3" in why]
    assert [name for name in small if name.startswith("cond/")] == [
        "cond/false/aten_tanh_default",
        "cond/false/aten_mul_tensor",
    ]
    check(pte, model, *calls)


@pytest.mark.long
def test_full_graph_lists_what_stays_out_in_branches_too():
    _, _, program = case("nested")
    partitioner = reference(full_graph=True, excluded_ops=["aten.tanh"])
    with pytest.raises(PartitionError) as caught:
        lowered(program, partitioner)
    message = str(caught.value)
    assert "cond/true/cond/false/aten_tanh_default (aten::tanh.default): its operator" in message
    assert "cond/true/cond (cond): control flow" in message


@pytest.mark.long
def test_progress_and_the_log_name_the_branch(caplog):
    _, _, program = case("cond")
    events = []
    with caplog.at_level(logging.DEBUG, "trt_et"):
        lowered(program, reference(progress=events.append, excluded_ops=["aten.tanh"]))
    assert {"tensorrt_1_cond_true", "tensorrt_2_cond_false"} <= {e.partition for e in events}
    assert "partition tensorrt_1_cond_true: reference engine" in caplog.text
    assert "cond/false/aten_tanh_default (aten::tanh.default) stays on the CPU" in caplog.text


def test_equal_branches_share_an_engine():
    def alike(x):
        y = torch.cond(x.sum() > 0, lambda a: a.tanh() + a, torch.sin, (x,))
        return torch.cond(x.sum() > 1, lambda a: a.tanh() + a, torch.cos, (y,))

    pte = lowered(torch.export.export(Function(alike), (torch.randn(2, 4),)), reference())
    assert len(blobs(pte)) == 5
    assert len(set(blobs(pte))) == 4
