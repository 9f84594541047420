"""A graph that another partitioner has worked on, or will: pytorch/executorch#20077, box by box."""

from __future__ import annotations

import pytest
import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import to_edge, to_edge_transform_and_lower
from executorch.exir.backend.partitioner import DelegationSpec, Partitioner, PartitionResult
from executorch.exir.backend.utils import _maybe_duplicate_constant_nodes, tag_constant_data
from executorch.exir.delegate import executorch_call_delegate
from torch import nn

from tests.support.lowering import (
    export,
    lower,
)
from tests.support.models import make
from tests.support.simulated_gpus import check
from trt_et import TensorRTPartitioner
from trt_et.inspection import inspect_program

SPLIT = {"excluded_ops": [torch.ops.aten.cumsum]}


def edge_of(name: str) -> torch.export.ExportedProgram:
    return to_edge(export(name)).exported_program()


class FindsNothing(Partitioner):
    """Delegates no node, and preserves the operators that another partitioner preserves."""

    def __init__(self, other: Partitioner) -> None:
        super().__init__()
        self.ops_to_not_decompose = other.ops_to_not_decompose

    def partition(self, exported_program: torch.export.ExportedProgram) -> PartitionResult:
        return PartitionResult(exported_program, {})


class TakesWeightsAsInputs(Partitioner):
    """Another backend's: XNNPACK gets an operator, and its weights stay with the program."""

    def __init__(self, operator: str) -> None:
        super().__init__()
        self._operator = operator

    def partition(self, exported_program: torch.export.ExportedProgram) -> PartitionResult:
        (node,) = (n for n in exported_program.graph.nodes if self._operator in str(n.target))
        node.meta["delegation_tag"] = "other"
        return PartitionResult(exported_program, {"other": DelegationSpec("XnnpackBackend", [])})


def calls(program: torch.export.ExportedProgram) -> list[torch.fx.Node]:
    return [n for n in program.graph.nodes if n.target is executorch_call_delegate]


class Weights(nn.Module):
    """A layer for the first delegate, one for the second, and a buffer that nothing uses."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 4)
        self.register_buffer("unused", torch.zeros(1 << 18))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.cumsum(self.first(x), 1))


class Scaled(nn.Module):
    """A weight that another delegate gets as an argument, and a layer behind it."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.randn(4))
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x * self.scale)


def after_another_delegate() -> torch.export.ExportedProgram:
    """Scaled, with its multiplication taken already."""
    torch.manual_seed(0)
    program = torch.export.export(Scaled().eval(), (torch.randn(2, 4),))
    manager = to_edge(program).to_backend(TakesWeightsAsInputs("aten.mul.Tensor"))
    return manager.exported_program()


def test_delegate_calls_and_their_getitems_are_never_delegated_again():
    program = after_another_delegate()
    partitioner = TensorRTPartitioner(builder="reference")
    partitioner.partition(program)
    (call,) = calls(program)
    (result,) = call.users
    tagged = [n.name for n in program.graph.nodes if "delegation_tag" in n.meta]
    assert "aten_addmm_default" in tagged
    assert call.name not in tagged
    assert result.name not in tagged
    reasons = {name: why for name, _, why in partitioner.report.not_delegated}
    assert reasons[call.name] == "it is delegated already"
    assert reasons[result.name] == "it is an output of an existing delegate"


def test_a_constant_of_a_prior_delegate_stays_untagged():

    edge = after_another_delegate()
    (call,) = calls(edge)
    TensorRTPartitioner(builder="reference").partition(edge)
    placeholders = [node for node in edge.graph.nodes if node.op == "placeholder"]
    tags = {node.name: node.meta.get("delegation_tag") for node in placeholders}
    assert any(node.name == "p_scale" for node in call.args)
    assert tags == {
        "p_scale": None,
        "p_linear_weight": "tensorrt_0",
        "p_linear_bias": "tensorrt_0",
        "x": None,
    }


def test_a_genuinely_unused_constant_does_not_end_up_in_the_file():
    program = torch.export.export(Weights().eval(), (torch.randn(2, 4),))
    edge = to_edge(program).exported_program()
    TensorRTPartitioner(builder="reference", **SPLIT).partition(edge)
    (unused,) = (n for n in edge.graph.nodes if n.name == "b_unused")
    assert unused.meta["delegation_tag"] == "tensorrt_0"
    assert len(lower(program, **SPLIT)) < (1 << 18)


@pytest.mark.parametrize("elsewhere", ["engine", "cpu", "list", "cond"])
def test_every_user_of_a_tagged_constant_shares_its_tag(elsewhere):

    class Shared(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(4, 4))

        def forward(self, x):
            y = torch.cumsum((x @ self.weight).relu(), 1)
            if elsewhere == "engine":
                return y @ self.weight
            if elsewhere == "cpu":
                return torch.cumsum(self.weight, 1) @ y
            if elsewhere == "list":
                return torch.cumsum(torch.cat([self.weight, y]), 1).relu()
            return torch.cond(x.sum() > 0, lambda y: y @ self.weight, lambda y: y * 2, (y,))

    torch.manual_seed(0)
    model, inputs = Shared().eval(), (torch.randn(4, 4),)
    program = torch.export.export(model, inputs)
    edge = to_edge(program).exported_program()
    result = TensorRTPartitioner(builder="reference", **SPLIT).partition(edge)
    assert result.partition_tags
    # As to_backend does before it cuts partitions out.
    for tag in result.partition_tags:
        _maybe_duplicate_constant_nodes(edge, tag)
    tagged = [n for n in edge.graph.nodes if n.op == "placeholder" and n.users]
    tagged = [n for n in tagged if n.meta.get("delegation_tag")]
    assert tagged
    for node in tagged:
        tags = {user.meta.get("delegation_tag") for user in node.users}
        assert tags == {node.meta["delegation_tag"]}
    check(lower(program, **SPLIT), model, inputs)


def test_with_a_single_partitioner_nothing_changes():
    program = export("split")
    alone = lower(program, **SPLIT)
    for order in ("nothing before", "nothing behind", "ourselves behind"):
        ours = TensorRTPartitioner(builder="reference", **SPLIT)
        chain: list[Partitioner] = [ours, FindsNothing(ours)]
        if order == "nothing before":
            chain.reverse()
        if order == "ourselves behind":
            chain[1] = TensorRTPartitioner(builder="reference", **SPLIT)
        manager = to_edge_transform_and_lower(program, partitioner=chain)
        assert bytes(manager.to_executorch().buffer) == alone, order
    # And constants are tagged as ExecuTorch's own function tags them.
    mine, plain = edge_of("split"), edge_of("split")
    TensorRTPartitioner(builder="reference", **SPLIT).partition(mine)
    nodes = list(zip(mine.graph.nodes, plain.graph.nodes, strict=True))
    for have, want in nodes:
        if have.op != "placeholder" and "delegation_tag" in have.meta:
            want.meta["delegation_tag"] = have.meta["delegation_tag"]
    tag_constant_data(plain)
    for have, want in nodes:
        assert have.meta.get("delegation_tag") == want.meta.get("delegation_tag")


@pytest.mark.parametrize("first", ["TensorRT", "XNNPACK"])
def test_tensorrt_and_xnnpack_run_in_one_program_in_either_order(first):
    model, inputs = make("cnn")
    ours = TensorRTPartitioner(
        builder="reference", excluded_ops=[torch.ops.aten.convolution.default]
    )
    chain = [ours, XnnpackPartitioner()] if first == "TensorRT" else [XnnpackPartitioner(), ours]
    program = torch.export.export(model, inputs)
    manager = to_edge_transform_and_lower(program, partitioner=chain)
    pte = bytes(manager.to_executorch().buffer)
    backends = {delegate.backend_id for delegate in inspect_program(pte)[0].delegates}
    assert backends == {"TensorRTBackend", "XnnpackBackend"}
    check(pte, model, inputs)
