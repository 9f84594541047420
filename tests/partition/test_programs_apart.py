"""A partitioner treats each program as if it had no other, even if nodes have the same names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from executorch.exir import to_edge_transform_and_lower
from executorch.exir.delegate import executorch_call_delegate
from torch import nn
from torch.export import Dim, ExportedProgram

from tests.support.lowering import reference
from tests.support.models import Function
from tests.support.sampled import sampled
from trt_et import OptionError, TensorRTPartitioner
from trt_et.partition.report import Partition


class Model(nn.Module):
    def __init__(self, width: int, scale: float, shift: float) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, width), nn.Linear(width, 8)
        self.scale = nn.Parameter(torch.tensor(scale), requires_grad=False)
        nn.init.constant_(self.first.weight, shift)

    def forward(self, x):
        return self.second(self.first(x).relu()) * self.scale


X = torch.ones(4, 8)


def exported(width: int = 8, scale: float = 1.0, shift: float = 1.0, size: float = 1.0):
    torch.manual_seed(0)
    return torch.export.export(Model(width, scale, shift).eval(), (X * size,))


def is_narrow_linear(node: torch.fx.Node) -> bool:
    """True for a call of the exported program alone: the Edge program has no linear."""
    return node.target is torch.ops.aten.linear.default and node.meta["val"].shape[-1] == 5


# The options, and two programs that they choose differently in.
CASES: dict[str, tuple[dict[str, Any], Callable[[], ExportedProgram], Callable[[], Any]]] = {
    "excluded_ops": ({"excluded_ops": [is_narrow_linear]}, exported, lambda: exported(width=5)),
    "float32_ops": (
        {"precision": "float16", "float32_ops": [is_narrow_linear], "calibration": []},
        exported,
        lambda: exported(width=5),
    ),
    "example inputs": ({"precision": "float16"}, exported, lambda: exported(size=1e4)),
    "calibration": (
        {"precision": "float16", "calibration": [(X,)]},
        exported,
        lambda: exported(shift=1e4),
    ),
    "weights": (
        {"precision": "float16", "calibration": []},
        exported,
        lambda: exported(scale=1e6),
    ),
}


class Lowering:
    """What a partitioner makes of programs."""

    def __init__(self, **options: Any) -> None:
        self.partitions: list[Partition] = []
        self.meanwhile: Callable[[], object] = lambda: None
        self.partitioner = reference(device=self._device, progress=False, **options)

    def _device(self, partition: Partition) -> int:
        meanwhile, self.meanwhile = self.meanwhile, lambda: None
        meanwhile()
        self.partitions.append(partition)
        return 0

    def results(self, programs: Mapping[str, ExportedProgram]) -> dict[str, Any]:
        """The calls on the CPU, the engines and the report's partitions of each program."""
        edge = to_edge_transform_and_lower(dict(programs), partitioner=[self.partitioner])
        found: dict[str, Any] = {}
        for name in programs:
            module = edge.exported_program(name).graph_module
            calls = [node for node in module.graph.nodes if node.op == "call_function"]
            engines = [
                getattr(module, node.args[0].target).processed_bytes
                for node in calls
                if node.target is executorch_call_delegate
            ]
            parts = [self.partitions.pop(0) for _ in engines]
            found[name] = [str(node.target) for node in calls], engines, parts
        return found


@pytest.fixture(params=CASES, scope="module")
def case(request):
    options, *programs = CASES[request.param]
    alone = {}
    for name, make in zip("ab", programs, strict=True):
        alone |= Lowering(**options).results({name: make()})
    kept = [[part.float32 for part in alone[name][2]] for name in "ab"]
    # Else the case shows nothing.
    assert kept[0] != kept[1] or alone["a"][0] != alone["b"][0]
    return options, dict(zip("ab", programs, strict=True)), alone


@pytest.mark.parametrize("order", ["ab", "ba"])
def test_methods_of_one_partitioner_are_as_if_lowered_alone(case, order):
    options, programs, alone = case
    assert Lowering(**options).results({name: programs[name]() for name in order}) == alone


@pytest.mark.parametrize("order", sampled(["aab", "bba"], 2))
def test_programs_one_after_the_other_are_as_if_lowered_alone(case, order):
    options, programs, alone = case
    lowering = Lowering(**options)
    same = {name: programs[name]() for name in "ab"}
    for name in order:
        assert lowering.results({name: same[name]}) == {name: alone[name]}


def test_a_program_that_another_thread_lowers_meanwhile_changes_nothing(case):
    """torch lowers one program at a time, so the first waits for the second."""
    options, programs, alone = case
    lowering = Lowering(**options)

    def meanwhile() -> None:
        with ThreadPoolExecutor(1) as pool:
            second = pool.submit(lambda: lowering.results({"b": programs["b"]()})).result()
        assert second == {"b": alone["b"]}

    lowering.meanwhile = meanwhile
    assert lowering.results({"a": programs["a"]()}) == {"a": alone["a"]}


@pytest.mark.parametrize("order", [(900, 700), (700, 900)])
def test_each_method_is_warned_of_its_own_range(order, caplog):
    """torch narrows the size to 640, to choose a kernel for the second convolution."""
    first, second = nn.Conv1d(32, 8, 3), nn.Conv1d(8, 4, 5)
    model = Function(lambda x: second(first(x).double().sin().float()))
    programs = {
        f"of_{size}": torch.export.export(
            model, (torch.rand(1, 32, 50),), dynamic_shapes=(({2: Dim("n", min=8, max=size)},),)
        )
        for size in order
    }
    to_edge_transform_and_lower(programs, partitioner=[reference(progress=False)])
    found = [m.partition(", not ")[2][:3] for m in caplog.messages if "narrowed dimension" in m]
    assert found == [str(size) for size in order]


def test_a_name_that_an_earlier_program_has_is_unknown_in_the_next():
    partitioner = reference(excluded_ops=["relu"], progress=False)
    to_edge_transform_and_lower(exported(), partitioner=[partitioner])
    other = torch.export.export(nn.Sequential(nn.Tanh()), (X,))
    with pytest.raises(OptionError, match="'relu', which matches no operator"):
        to_edge_transform_and_lower(other, partitioner=[partitioner])
    with pytest.raises(OptionError, match="'relu', which matches no operator"):
        partitioner.explain(other)


@pytest.mark.parametrize("order", ["ab", "ba"])
def test_a_name_may_match_in_a_method_without_partitions_alone(order):
    programs = {
        "a": torch.export.export(nn.Sequential(nn.ReLU()), (X,)),
        "b": torch.export.export(nn.Sequential(nn.Tanh()), (X,)),
    }
    partitioner = reference(excluded_ops=["tanh"], progress=False)
    methods = {name: programs[name] for name in order}
    edge = to_edge_transform_and_lower(methods, partitioner=[partitioner])
    targets = [str(node.target) for node in edge.exported_program("b").graph.nodes]
    assert any("tanh" in target for target in targets)


def test_two_partitioners_of_one_program_choose_for_themselves():
    """The first takes all but the linears, the second all that is left."""
    linear = torch.ops.aten.linear
    first = reference(excluded_ops=[linear], progress=False)
    second = TensorRTPartitioner(builder="reference", precision="float16", progress=False)
    to_edge_transform_and_lower(exported(), partitioner=[first, second])
    assert [op for part in second.report.partitions for op in part.operators].count(
        "aten::addmm.default"
    ) == 2


def test_the_callers_program_gets_no_marks():
    program = exported(size=1e4)
    reference(excluded_ops=["relu"], precision="float16").explain(program)
    assert not [node for node in program.graph.nodes if node.meta.get("custom")]
