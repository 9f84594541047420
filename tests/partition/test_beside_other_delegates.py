"""A graph that another partitioner has worked on, or will: pytorch/executorch#20077, box by box."""

from __future__ import annotations

import pytest
import torch
from executorch.backends.xnnpack.xnnpack_preprocess import XnnpackBackend
from executorch.exir import to_edge
from executorch.exir.backend.partitioner import DelegationSpec, Partitioner, PartitionResult
from executorch.exir.delegate import executorch_call_delegate
from torch import nn

from tests.support.lowering import export, finish, lower, reference
from tests.support.models import make
from tests.support.sampled import sampled
from tests.support.simulated_gpus import check

SPLIT = {"excluded_ops": [torch.ops.aten.cumsum]}


class FindsNothing(Partitioner):
    """Delegates no node, and preserves the operators that another partitioner preserves."""

    def __init__(self, other: Partitioner) -> None:
        super().__init__()
        self.ops_to_not_decompose = other.ops_to_not_decompose

    def partition(self, exported_program: torch.export.ExportedProgram) -> PartitionResult:
        return PartitionResult(exported_program, {})


class TakesWeightsAsInputs(Partitioner):
    """Another backend's: XNNPACK gets a multiplication, and its weight stays with the program."""

    def partition(self, exported_program: torch.export.ExportedProgram) -> PartitionResult:
        (node,) = (n for n in exported_program.graph.nodes if "aten.mul.Tensor" in str(n.target))
        node.meta["delegation_tag"] = "other"
        return PartitionResult(
            exported_program, {"other": DelegationSpec(XnnpackBackend.__name__, [])}
        )


class Scaled(nn.Module):
    """A weight that another delegate gets as an argument, and a layer behind it."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.randn(4))
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x * self.scale)


def test_a_prior_delegate_its_results_and_its_constants_stay_untagged(caplog):
    program = torch.export.export(Scaled().eval(), (torch.randn(2, 4),))
    edge = to_edge(program).to_backend(TakesWeightsAsInputs()).exported_program()
    partitioner = reference()
    partitioner.partition(edge)
    (call,) = (n for n in edge.graph.nodes if n.target is executorch_call_delegate)
    (result,) = call.users
    assert any(node.name == "p_scale" for node in call.args)
    tagged = {node.name for node in edge.graph.nodes if "delegation_tag" in node.meta}
    assert {"p_linear_weight", "p_linear_bias", "aten_addmm_default"} <= tagged
    assert tagged.isdisjoint({"p_scale", "x", call.name, result.name})
    reasons = {name: why for name, _, why in partitioner.report.not_delegated}
    assert reasons[call.name] == "it is delegated already"
    assert reasons[result.name] == "it is an output of an existing delegate"
    assert "delegates nothing" not in caplog.text
    reference(min_block_size=99).partition(edge)
    assert "delegates nothing; other delegates have some" in caplog.text


def test_a_genuinely_unused_constant_does_not_end_up_in_the_file():
    model, inputs = make("split")
    model.register_buffer("unused", torch.zeros(1 << 18))
    assert len(lower(torch.export.export(model, inputs), **SPLIT)) < (1 << 18)


@pytest.mark.parametrize("elsewhere", sampled(["engine", "cpu", "list", "cond"], 2))
def test_a_weight_may_be_used_by_an_engine_and_elsewhere(elsewhere):

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
    partitioner = reference(**SPLIT)
    pte = lower(torch.export.export(model, inputs), partitioner=partitioner)
    assert partitioner.report.partitions
    check(pte, model, inputs)


def test_with_a_single_partitioner_nothing_changes():
    program = export("split")
    alone = lower(program, **SPLIT)
    ours = reference(**SPLIT)
    nothing = FindsNothing(ours)
    for chain in ((nothing, ours), (ours, nothing), (ours, reference(**SPLIT))):
        assert bytes(finish(program, *chain).buffer) == alone
