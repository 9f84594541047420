"""What the report says of operators that keep float32, and which options are refused."""

from __future__ import annotations

import re

import pytest
import torch
from executorch.exir import to_edge, to_edge_transform_and_lower
from torch import nn
from torch.nn import functional

from tests.support.lowering import export, reference
from tests.support.models import Function
from tests.support.programs.kv_cache_models import Recorder
from trt_et import OptionError, TensorRTPartitioner
from trt_et.conversion.installed import installed_variant
from trt_et.graph.fragment import Fragment, Unsupported, fragment_of_group
from trt_et.precision.plan import Float32Plan


def explained(name: str, **options):
    return reference(precision="float16", **options).explain(export(name))


def test_the_report_groups_what_keeps_float32_by_reason():
    report = explained("vit")
    (partition,) = report.partitions
    assert partition.float32_groups()["normalizations"] == "4 x aten::native_layer_norm.default"
    assert "    float32: normalizations: 4 x aten::native_layer_norm.default" in str(report)
    assert "In float32" in report._repr_html_()
    assert not any(operator == "aten::linear.default" for _, operator, _ in partition.float32)


def test_without_precision_the_report_has_no_such_lines():
    report = reference().explain(export("mlp"))
    assert "float32:" not in str(report)
    assert "In float32" not in report._repr_html_()


def test_the_callers_choice_and_calibration_are_in_the_report():
    inputs = (torch.full((4, 16), 1e6),)
    (partition,) = explained("mlp", float32_ops=["linear_1"], calibration=[inputs]).partitions
    assert partition.float32_groups()["float32_ops"] == "aten::linear.default"
    assert "values beyond 3.28e+04 in calibration" in partition.float32_groups()


@pytest.mark.parametrize(
    ("scale", "options", "named"),
    [
        (1e-6, {}, r"below 6.1e-05, .*: mul .* float32_ops=\['mul', 'linear'\]"),
        (1e-6, {"float32_ops": ["mul"]}, r"of 1 tensor.* float32_ops=\['linear'\]"),
        (1e-6, {"float32_ops": ["mul", "linear"]}, None),
        (1e-6, {"calibration": [(torch.full((2, 4), 1e3),)]}, None),
        (1e-6, {"calibration": []}, None),
        (1e-6, {"precision": "bfloat16"}, None),
        (0.0, {}, None),
        (1.0, {}, None),
    ],
)
def test_tensors_that_underflow_in_calibration_are_named(scale, options, named, caplog):
    model = Function(lambda x: functional.linear(x * scale, torch.eye(4)) * 1e6)
    program = torch.export.export(model, (torch.ones(2, 4),))
    reference(**{"precision": "float16"} | options).explain(program)
    found = [r.getMessage() for r in caplog.records if r.name == "trt_et.precision.calibration"]
    assert len(found) == (named is not None)
    assert named is None or re.search(named, found[0]), found


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"precision": "fp8"}, r"precision is 'fp8'; expected None .*, 'float16' or 'bfloat16'"),
        ({"precision": torch.float64}, "precision is torch.float64; expected None"),
        ({"precision": "float16", "float32_ops": ["aten.lineer"]}, "near it: aten.linear"),
        ({"precision": "float16", "float32_ops": ["lineer_1"]}, "float32_ops names 'lineer_1'"),
        ({"precision": "float16", "float32_ops": "aten.linear"}, "float32_ops is 'aten.linear'"),
        ({"float32_ops": ["aten.linear"]}, "float32_ops needs precision='float16'"),
        ({"calibration": [(torch.ones(4, 16),)]}, "calibration needs precision='float16'"),
        ({"precision": "float16", "calibration": torch.ones(2)}, "expected a list of tuples"),
        ({"precision": "float16", "calibration": [()]}, r"calibration\[0\] has 0 inputs; .* 1"),
        (
            {"precision": "float16", "calibration": [(torch.ones(4, 16).double(),)]},
            r"calibration\[0\]: input input is torch.float64; expected torch.float32",
        ),
        (
            {"precision": "float16", "calibration": [(3,)]},
            r"calibration\[0\]: input input is int; expected a tensor",
        ),
    ],
)
def test_an_impossible_choice_is_refused(options, message):
    with pytest.raises(OptionError, match=message):
        reference(**options).explain(export("mlp"))


def test_branches_compute_in_the_precision_too():
    def function(x):
        return torch.cond(x.sum() > 0, lambda x: (x @ x).exp(), lambda x: x @ x - 1, (x,))

    program = torch.export.export(Function(function), (torch.randn(4, 4),))
    partitioner = reference(precision="float16", float32_ops=["cond/false"])
    kept = {
        part.subgraph: [why for _, _, why in part.float32]
        for part in partitioner.explain(program).partitions
        if part.subgraph
    }
    assert set(kept["cond/false"]) == {"float32_ops"}
    assert "exponentials, logarithms and powers" in kept["cond/true"]


@pytest.mark.skipif(installed_variant() != "tensorrt_rtx", reason="needs torch-tensorrt-rtx")
@pytest.mark.parametrize("builder", ["tensorrt_rtx", "onnx"])
def test_a_transposed_convolution_keeps_float32_beside_bfloat16(builder):
    model = nn.Sequential(nn.Conv2d(4, 4, 1), nn.ConvTranspose2d(4, 4, 2, 2)).eval()
    program = torch.export.export(model, (torch.randn(1, 4, 8, 8),))
    partitioner = TensorRTPartitioner(builder=builder, precision="bfloat16", progress=False)
    to_edge_transform_and_lower(program, partitioner=[partitioner])
    (partition,) = partitioner.report.partitions
    (kept,) = partition.float32
    assert kept[0] == "aten_convolution_default_1"
    assert kept[2].startswith("TensorRT does not take it in bfloat16: ")
    assert not partitioner.report.not_delegated


class Float32Only(Recorder):
    """Takes an operator in float32 only, or several of them if they are beside each other."""

    def __init__(self, *targets: object) -> None:
        super().__init__()
        self.targets = targets

    def fingerprint(self) -> str:
        return str(self.targets)

    def make_support_check(self, options):
        def check(fragment: Fragment) -> Unsupported | None:
            lower = [
                call
                for call in fragment.calls
                if call.target in self.targets and call.meta["val"].dtype != torch.float32
            ]
            if {call.target for call in lower} == set(self.targets):
                return Unsupported("no kernel", lower[-1].name)
            return None

        return check


@pytest.mark.parametrize(("name", "precision"), [("gelu", "float16"), ("linear", "bfloat16")])
def test_what_the_builder_takes_in_float32_only_keeps_float32(name, precision):
    target = getattr(torch.ops.aten, name).default
    builder = Float32Only(target)
    partitioner = TensorRTPartitioner(builder=builder, precision=precision)
    to_edge_transform_and_lower(export("mlp"), partitioner=[partitioner])
    (partition,) = partitioner.report.partitions
    reason = f"TensorRT does not take it in {precision}: no kernel"
    operators = {operator for _, operator, why in partition.float32 if why == reason}
    assert operators == {f"aten::{name}.default"}
    nodes = builder.requests[0].program.exported.graph.find_nodes(op="call_function", target=target)
    assert {node.meta["val"].dtype for node in nodes} == {torch.float32}


def test_what_it_takes_in_float32_only_beside_another_call_keeps_float32():
    builder = Float32Only(torch.ops.aten.linear.default, torch.ops.aten.gelu.default)
    partitioner = TensorRTPartitioner(builder=builder, precision="float16")
    partitioner.explain(export("mlp"))
    (partition,) = partitioner.report.partitions
    assert any("does not take it" in why for _, _, why in partition.float32)
    assert not partitioner.report.not_delegated


def test_a_group_that_was_accepted_as_another_fragment_and_is_refused_is_planned():
    """The same calls are asked about for one operator, with other outputs, and for their group."""
    graph = export("mlp").graph
    calls = [node for node in graph.nodes if node.op == "call_function"]
    group = fragment_of_group(calls, {})
    refused = False

    def check(fragment: Fragment) -> Unsupported | None:
        lower = any(call.meta["val"].dtype == torch.float16 for call in fragment.calls)
        return Unsupported("no kernel", None) if refused and lower else None

    plan = Float32Plan(check, torch.float16)
    assert plan.check(Fragment(group.calls, group.calls)) is None
    refused = True
    assert plan.check(group) is None
    assert list(plan.keep(group, {call: call for call in calls})) == calls


class Norms(nn.Module):
    """Batch norms that become a product and a sum whose numbers leave float16's range."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.norm, self.b = nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 8)
        self.norm.running_mean.fill_(1000.0)
        self.norm.running_var.fill_(0.0)

    def forward(self, x):
        return self.b(self.norm(self.a(x).relu()))


PLANNED = {
    "batch norms": (Norms, (2, 8)),
    "numbers": (lambda: Function(lambda x: (x @ x) * -3e38 + x @ x), (4, 4)),
    "places in memory": (
        lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(64, 4)),
        (2, 3, 6, 6),
    ),
}


@pytest.mark.parametrize("name", PLANNED)
@pytest.mark.parametrize("is_edge", [False, True])
def test_the_report_lists_what_the_engine_computes_in_float32(name, is_edge):
    torch.manual_seed(0)
    make_model, shape = PLANNED[name]
    x = torch.randn(shape)
    x = x.to(memory_format=torch.channels_last) if x.dim() == 4 else x
    program = torch.export.export(make_model().eval(), (x,))
    builder = Recorder()
    options = {"builder": builder, "precision": "float16", "progress": False}
    partitioner = TensorRTPartitioner(**options, calibration=[])
    if is_edge:
        to_edge(program).to_backend(partitioner)
    else:
        to_edge_transform_and_lower(program, partitioner=[partitioner])
    (partition,), (request,) = partitioner.report.partitions, builder.requests
    edge_names = request.program.names
    wide = {
        edge_names[node.name]
        for node in request.program.exported.graph.nodes
        if node.op == "call_function"
        and node.target is not torch.ops.aten._to_copy.default
        and isinstance(node.meta["val"], torch.Tensor)
        and node.meta["val"].dtype == torch.float32
    }
    assert {node for node, _, _ in partition.float32} == wide.intersection(partition.nodes)
