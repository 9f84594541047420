"""Engines in the branches of ``cond`` and the bodies of ``map`` and ``scan``."""

from __future__ import annotations

import logging

import pytest
import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import ExecutorchBackendConfig, to_edge, to_edge_transform_and_lower
from functorch.experimental.control_flow import map as torch_map
from torch import nn
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.export import Dim
from torch.nn import functional
from torch.utils import _pytree as pytree

from tests.support.lowering import blobs, delegate_tensor_devices, target_devices
from tests.support.stock_process import run
from trt_et import TensorRTMemoryPlanningPass, TensorRTPartitioner
from trt_et.engine_info import parse_device_id
from trt_et.errors import PartitionError
from trt_et.graph.subgraphs import subgraphs
from trt_et.inspection import inspect_program


@pytest.fixture(autouse=True)
def _no_grad():
    # With gradients on, to_executorch() itself refuses programs with mutated buffers.
    with torch.no_grad():
        yield


def reference(**options) -> TensorRTPartitioner:
    return TensorRTPartitioner(builder="reference", **options)


class Cond(nn.Module):
    """Weights of one branch, of both, and of both and outside; numbers; a tensor from outside."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.once = nn.Linear(4, 4)
        self.scale = nn.Parameter(torch.randn(4))

    def forward(self, x):
        y = self.linear(x)
        shift = torch.tensor([1.0, 2.0, 3.0, 4.0])
        z = torch.cond(
            x.sum() > 0,
            lambda a: (self.linear(a).relu() * 2 + shift) * self.scale,
            lambda a: (self.once(a).tanh() - 1) * self.scale,
            (y,),
        )
        return z.sigmoid() * self.scale


class TwoConds(nn.Module):
    """A weight that two conds and three engines outside of them use."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        y = torch.cond(x.sum() > 0, self.linear, torch.tanh, (self.linear(x),))
        y = self.linear(y)
        return self.linear(torch.cond(y.sum() > 0, self.linear, torch.sin, (y,)))


class Nested(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x, y):
        def inner(a, b):
            return torch.cond(
                b.max() > 1,
                lambda a, b: self.linear(a) @ b,
                lambda a, b: (a * 3 + b).tanh(),
                (a, b),
            )

        return torch.cond(x.sum() > 0, inner, lambda a, b: a - b * b, (self.linear(x), y))


class Map(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, xs, y):
        return torch_map(lambda x, y: self.linear(x + y).relu(), xs, y)


class CondInMap(Map):
    def forward(self, xs, y):
        def body(x, y):
            return torch.cond(
                x.sum() > 0,
                lambda a, b: self.linear(a + b),
                lambda a, b: (a - b).tanh() * a,
                (x, y),
            )

        return torch_map(body, xs, y)


class Scan(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, start, xs):
        return scan(lambda c, x: ((self.linear(c) + x).tanh(), (c * x).relu()), start, xs)


class Layers(nn.Module):
    """What TensorRT has layers for, with weights that are arguments."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.slope = nn.PReLU()
        self.back = nn.ConvTranspose2d(8, 3, 3, 1, 1)
        self.to(memory_format=torch.channels_last)

    def forward(self, x):
        return torch.cond(
            x.sum() > 0,
            lambda a: self.back(self.slope(self.norm(self.conv(a)))),
            lambda a: a - functional.softplus(a),
            (x,),
        )


class Sized(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        return torch.cond(
            x.sum() > 0,
            lambda a: functional.pad(self.linear(a), (0, 1)).relu() * a.shape[0],
            lambda a: torch.cat([a.tanh(), a[:, :1]], 1),
            (x,),
        )


class State(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("total", torch.zeros(2, 4))

    def forward(self, x):
        self.total.add_(self.linear(x))
        y = torch.cond(
            x.sum() > 0,
            lambda a, t: self.linear(a) + t,
            lambda a, t: (a * t).tanh(),
            (x, self.total),
        )
        return y + self.total


class Sigmoid(nn.Module):
    """Something for two backends outside of the branches."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        y = torch.cond(x.sum() > 0, lambda a: a.relu() + 1, lambda a: a.tanh() * a, (x,))
        return self.linear(y).sigmoid()


def signed(*shapes: tuple[int, ...]) -> list[tuple[torch.Tensor, ...]]:
    """Arguments whose first is positive, negative, and positive again."""
    return [
        tuple(torch.rand(shape) * (sign if index == 0 else 2) for index, shape in enumerate(shapes))
        for sign in (1, -1, 1)
    ]


def mixed(*shapes: tuple[int, ...]) -> list[tuple[torch.Tensor, ...]]:
    return [tuple(torch.randn(shape) for shape in shapes) for _ in range(2)]


CASES = {
    "cond": (Cond, lambda: signed((2, 4)), ["", "cond/true", "cond/false", ""]),
    "two_conds": (
        TwoConds,
        lambda: signed((2, 4)),
        ["", "cond/true", "cond/false", "", "cond_1/true", "cond_1/false", ""],
    ),
    "nested": (
        Nested,
        # The inner cond is reached by a positive x; y decides there.
        lambda: [*signed((4, 4), (4, 4)), (torch.ones(4, 4), torch.zeros(4, 4))],
        ["", "cond/true", "cond/true/cond/true", "cond/true/cond/false", "cond/false"],
    ),
    "map": (Map, lambda: mixed((5, 2, 4), (2, 4)), ["map_impl/body"]),
    "cond_in_map": (
        CondInMap,
        lambda: mixed((7, 4, 4), (4, 4)),
        ["map_impl/body", "map_impl/body/cond/true", "map_impl/body/cond/false"],
    ),
    "scan": (Scan, lambda: mixed((2, 4), (5, 2, 4)), ["scan/body"]),
    "layers": (
        Layers,
        lambda: [(x.to(memory_format=torch.channels_last),) for (x,) in signed((2, 3, 8, 8))],
        ["", "cond/true", "cond/false"],
    ),
    "sized": (Sized, lambda: signed((3, 4)) + signed((8, 4)), ["", "cond/true", "cond/false"]),
    "state": (State, lambda: signed((2, 4)), ["", "cond/true", "cond/false", ""]),
}
DYNAMIC = {"sized": {"x": {0: Dim("n", max=8)}}}


def case(
    name: str,
) -> tuple[nn.Module, list[tuple[torch.Tensor, ...]], torch.export.ExportedProgram]:
    torch.manual_seed(0)
    make, calls, _ = CASES[name]
    model, arguments = make().eval(), calls()
    program = torch.export.export(model, arguments[0], dynamic_shapes=DYNAMIC.get(name))
    if isinstance(model, State):
        model.total.zero_()  # As ExecuTorch starts.
    return model, arguments, program


def lowered(program: torch.export.ExportedProgram, *partitioners, planning=None) -> bytes:
    manager = to_edge_transform_and_lower(program, partitioner=list(partitioners))
    config = ExecutorchBackendConfig(memory_planning_pass=planning) if planning else None
    return bytes(manager.to_executorch(config).buffer)


def check(folder, pte: bytes, model: nn.Module, calls) -> None:
    for outputs, call in zip(run(folder, pte, *calls), calls, strict=True):
        expected = pytree.tree_leaves(model(*call))
        for have, want in zip(outputs, expected, strict=True):
            torch.testing.assert_close(have, want, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", CASES)
def test_all_operators_in_branches_go_to_engines_and_run_like_eager(tmp_path, name):
    model, calls, program = case(name)
    partitioner = reference(device="cuda:1")
    pte = lowered(program, partitioner)
    left = {operator for _, operator, _ in partitioner.report.not_delegated}
    # The copy is of a constant, for an operand of control flow: no work for an engine.
    copy = "dim_order_ops::_clone_dim_order.default"
    assert left <= {"cond", "map_impl", "scan", "getitem", "aten::sym_size.int", copy}
    assert [part.subgraph for part in partitioner.report.partitions] == CASES[name][2]
    assert target_devices(pte) == [[b"cuda:1"]] * len(CASES[name][2])
    check(tmp_path, pte, model, calls)


def test_state_that_a_branch_reads_is_right_with_our_memory_planning(tmp_path):
    model, calls, program = case("state")
    pte = lowered(program, reference(device="cuda:1"), planning=TensorRTMemoryPlanningPass())
    check(tmp_path, pte, model, calls)


def test_tensors_of_engines_in_branches_are_labelled_cpu_and_those_outside_with_their_gpu():
    """ExecuTorch's propagation of devices does not enter branches: the delegate copies there."""
    _, _, program = case("cond")
    pte = lowered(program, reference(device="cuda:1"))
    gpu, host = {("CUDA", 1)}, {("CPU", 0)}
    assert delegate_tensor_devices(pte) == [gpu, host, host, gpu]
    assert [parse_device_id(blob) for blob in blobs(pte)] == [1] * 4


def test_every_branch_may_have_a_gpu_of_its_own(tmp_path):
    model, calls, program = case("cond")
    partitioner = reference(device=lambda part: int(part.subgraph == "cond/false"))
    pte = lowered(program, partitioner)
    found = sorted(parse_device_id(blob) for blob in blobs(pte))
    assert found == [0, 0, 0, 1]
    check(tmp_path, pte, model, calls)


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


def test_lowering_does_what_the_plan_says():
    _, _, program = case("nested")
    planned = reference().explain(program)
    partitioner = reference()
    lowered(program, partitioner)
    assert partitioner.report == planned


def test_min_block_size_counts_in_each_branch(tmp_path):
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
    check(tmp_path, pte, model, calls)


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


def test_a_program_of_two_partitions_in_a_branch_runs(tmp_path):
    class Torn(nn.Module):
        def forward(self, x):
            return torch.cond(
                x.sum() > 0, lambda a: torch.cumsum(a * 2, 1).relu() + 1, torch.sin, (x,)
            )

    calls = signed((2, 4))
    partitioner = reference(excluded_ops=[torch.ops.aten.cumsum])
    pte = lowered(torch.export.export(Torn(), calls[0]), partitioner)
    places_ = [part.subgraph for part in partitioner.report.partitions]
    assert places_ == ["", "cond/true", "cond/true", "cond/false"]
    check(tmp_path, pte, Torn(), calls)


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
    assert "cond/false/aten_tanh_default (aten::tanh.default) stays out" in caplog.text


def test_a_build_that_fails_in_a_branch_says_which():
    class Fails:
        name = "reference"

        def build(self, request):
            if "cond_true" in request.partition:
                raise ValueError("no such layer")
            from trt_et.builders import make_builder

            return make_builder("reference").build(request)

    _, _, program = case("cond")
    with pytest.raises(PartitionError, match=r"tensorrt_1_cond_true.*no such layer"):
        lowered(program, TensorRTPartitioner(builder=Fails()))


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


def test_an_operator_that_a_branch_must_decompose_is_decomposed_everywhere(tmp_path):
    """An operator kept whole has no CPU kernel, so every one of its calls must be in an engine."""

    class Double(nn.Module):
        def forward(self, x):
            y = functional.softplus(x)
            return torch.cond(
                x.sum() > 0, lambda a: functional.softplus(a.double()).float(), torch.sin, (y,)
            )

    calls = signed((2, 4))
    partitioner = reference()
    pte = lowered(torch.export.export(Double(), calls[0]), partitioner)
    out = [
        why for name, _, why in partitioner.report.not_delegated if name.startswith("cond/true/")
    ]
    assert any("torch.float64" in why for why in out)
    check(tmp_path, pte, Double(), calls)


def test_what_while_loop_holds_stays_on_the_cpu_and_says_why():
    class Loop(nn.Module):
        def forward(self, x):
            y = functional.softplus(x)
            return while_loop(
                lambda i, a: i < 3, lambda i, a: (i + 1, functional.softplus(a)), (x[0, 0] * 0, y)
            )[1]

    program = torch.export.export(Loop(), (torch.randn(2, 4),))
    report = reference().explain(program)
    assert [part.subgraph for part in report.partitions] == [""]
    reasons = {n: why for n, _, why in report.not_delegated if n.startswith("while_loop/body/")}
    assert reasons
    assert set(reasons.values()) == {"ExecuTorch lowers nothing inside of while_loop"}
    # Had the call in the body been kept whole, nothing could run it.
    assert not any("softplus" in operator for _, operator, _ in report.not_delegated)


@pytest.mark.parametrize("first", ["ours", "xnnpack"])
def test_branches_work_with_xnnpack_before_and_behind(tmp_path, first):
    torch.manual_seed(0)
    model, calls = Sigmoid().eval(), signed((2, 4))
    ours = reference(excluded_ops=["aten.sigmoid"])
    order = [ours, XnnpackPartitioner()] if first == "ours" else [XnnpackPartitioner(), ours]
    pte = lowered(torch.export.export(model, calls[0]), *order)
    backends = [delegate.backend_id for delegate in inspect_program(pte)[0].delegates]
    assert backends.count("TensorRTBackend") >= 3
    assert "XnnpackBackend" in backends
    check(tmp_path, pte, model, calls)


@pytest.mark.parametrize("together", [True, False])
def test_branches_are_lowered_further_by_ourselves(tmp_path, together):
    model, calls, program = case("cond")
    first, second = reference(excluded_ops=["aten.tanh", "aten.relu"]), reference(device="cuda:1")
    if together:
        pte = lowered(program, first, second)
    else:
        manager = to_edge(program).to_backend(first).to_backend(second)
        pte = bytes(manager.to_executorch().buffer)
    (method,) = inspect_program(pte)
    assert [d.problem for d in method.delegates] == [""] * len(method.delegates)
    assert [d.engine.device_id for d in method.delegates].count(1) == 2
    assert not {"aten::tanh.out", "aten::relu.out"} & set(method.cpu_operators)
    check(tmp_path, pte, model, calls)


def test_results_of_a_delegate_in_a_branch_are_not_claimed_again(tmp_path):
    """ExecuTorch leaves its tags on them, and our second lowering has a partition of that name."""

    class Results(nn.Module):
        def forward(self, which, x):
            return torch.cond(which, lambda a: a.relu() * (a + 1).tanh(), torch.sin, (x,))

    calls = [(torch.tensor(which), torch.randn(2, 4)) for which in (True, False)]
    first = reference(excluded_ops=["aten.tanh", "aten.mul"])
    pte = lowered(torch.export.export(Results(), calls[0]), first, reference(device="cuda:1"))
    names = [part.name for part in first.report.partitions]
    assert names == ["tensorrt_0_cond_true", "tensorrt_1_cond_false"]
    assert [parse_device_id(blob) for blob in blobs(pte)] == [0, 1, 0]
    check(tmp_path, pte, Results(), calls)


def test_a_weight_in_lists_of_several_partitions_stays_with_the_cpu(tmp_path):
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
    assert "a weight in its list of tensors" in reasons["aten::cat.default"]
    check(tmp_path, pte, model, calls)


@pytest.mark.parametrize("name", ["cond", "layers", "map"])
def test_tensorrt_rtx_builds_the_engines_of_branches(name):
    """Weights are inputs there, which its converters must take."""
    pytest.importorskip("tensorrt_rtx")
    _, _, program = case(name)
    pte = lowered(program, TensorRTPartitioner(builder="tensorrt_rtx"))
    delegates = inspect_program(pte)[0].delegates
    assert [d.problem for d in delegates] == [""] * len(CASES[name][2])
    assert {d.engine.builder for d in delegates} == {"tensorrt_rtx"}


def test_places_are_each_found_once_outer_ones_first():
    _, _, program = case("nested")
    found = subgraphs(program.graph_module)
    assert [subgraph.path for subgraph in found] == [
        "",
        "cond/true",
        "cond/true/cond/true",
        "cond/true/cond/false",
        "cond/false",
    ]
    cond = next(node for node in found[0].graph.nodes if node.name == "cond")
    with found[0].graph.inserting_after(cond):
        found[0].graph.call_function(cond.target, cond.args)
    assert [subgraph.path for subgraph in subgraphs(program.graph_module)] == [
        p.path for p in found
    ]
