"""The plan without the building."""

from __future__ import annotations

import pytest
import torch
from executorch.exir import to_edge_transform_and_lower

from tests.support.lowering import export, export_with_batch, lower, reference
from tests.support.models import Function
from tests.support.programs.quantized_models import quantized
from trt_et import TensorRTPartitioner
from trt_et.engines import EngineBuilder


class Unbuilt(EngineBuilder):
    name = "reference"

    def build(self, request):
        raise AssertionError("explain() builds nothing")


def explain(program, **options):
    return TensorRTPartitioner(builder=Unbuilt(), **options).explain(program)


@pytest.mark.parametrize(("name", "excluded"), [("cnn", []), ("split", ["aten.cumsum"])])
def test_the_plan_is_what_lowering_does(name, excluded):
    program = export(name)
    planned = explain(program, excluded_ops=excluded)
    partitioner = reference(excluded_ops=excluded)
    lower(program, partitioner=partitioner)
    assert planned == partitioner.report


def test_boundaries_and_weights_are_counted_in_bytes():
    report = explain(export("mlp"))
    (partition,) = report.partitions
    assert [(t.dtype, t.shape, t.nbytes) for t in partition.inputs] == [
        (torch.float32, (4, 16), 4 * 16 * 4)
    ]
    assert [(t.shape, t.nbytes) for t in partition.outputs] == [((4, 4), 4 * 4 * 4)]
    weights = (16 * 32 + 32) + 2 * 32 + (32 * 32 + 32) + (32 * 4 + 4)
    assert partition.constant_bytes == weights * 4
    assert "tensorrt_0: 8 operators, 7,184 bytes of weights" in str(report)


def test_a_dynamic_boundary_counts_at_its_largest():
    report = explain(export_with_batch("mlp"))
    assert report.partitions[0].inputs[0].shape == (8, 16)


@pytest.mark.long
def test_int8_products_that_are_computed_in_floats_are_reported_in_one_line(caplog):
    program, _ = quantized("residual", symmetric=False)
    explain(program)
    (line,) = [r.getMessage() for r in caplog.records if "computed in float" in r.getMessage()]
    assert "2 aten::convolution, 1 aten::linear" in line  # The first has as many negative inputs.
    assert "TensorRTQuantizer" in line
    caplog.clear()
    program, _ = quantized("residual", symmetric=True)
    explain(program)
    assert "computed in float" not in caplog.text


def test_what_selects_a_result_of_an_operator_on_the_cpu_has_a_reason():
    def function(x):
        values, indices = torch.ops.aten.sort(x)
        return values + 1, indices

    program = torch.export.export(Function(function), (torch.randn(4, 8),))
    report = explain(program, excluded_ops=["aten.sort"])
    reasons = {reason for _, operator, reason in report.not_delegated if "getitem" in operator}
    assert reasons == {"the operator whose result it selects stays on the CPU"}


class Doubles(torch.nn.Module):
    def forward(self, x):
        for _ in range(50):
            x = torch.cumsum(x, 0)
        return x.erf() * 2


@pytest.fixture(scope="module")
def doubles():
    program = torch.export.export(Doubles(), (torch.randn(3),))
    return explain(program, excluded_ops=["aten.cumsum"])


def test_calls_with_one_reason_share_a_line_that_names_the_models_source(doubles):
    line, source = doubles.not_delegated_lines()
    assert line.startswith("not delegated: 50 x aten::cumsum.default: its operator is excluded")
    assert source.startswith("    at test_report.py:")
    assert source.endswith("in forward: x = torch.cumsum(x, 0)")
    assert doubles.not_delegated_lines(limit=1)[1].startswith("... and 1 more")
    assert str(doubles).splitlines()[0].startswith("tensorrt_0: 3 operators, ")


def test_one_reason_for_several_operators_is_one_line_with_the_cure(caplog):
    program = torch.export.export(
        Function(lambda x: x.relu() * x.sin() + x), (torch.ones(3).double(),)
    )
    line, source = explain(program).not_delegated_lines()
    assert line.startswith("not delegated: 1 x aten::relu.default, 1 x aten::sin.default, 1 x aten")
    assert (
        "TensorRT has no torch.float64 tensors; compute in torch.float32: model.float(), " in line
    )
    assert "(aten_relu_default, " in line
    assert source.startswith("    at models.py:")
    assert caplog.text.count("model.float()") == 1


def test_a_notebook_shows_tables(doubles):
    html = doubles._repr_html_()
    assert html.count("<table>") == 2
    assert all(word in html for word in ("Engines", "tensorrt_0", "On the CPU", "aten::cumsum"))


def test_the_plan_is_a_graph_of_engines_and_operators_with_their_tensors(doubles):
    picture = doubles.picture
    titles = [box.title for box in picture.boxes]
    assert titles[:2] == ["x", "cumsum"]
    assert titles[-2:] == ["tensorrt_0", "output 0"]
    assert len(titles) == 53
    assert picture.arrows[0, 1] == {"x: float32 [3], 12 B": 12}
    assert picture.arrows[51, 52] == {"aten_mul_tensor: float32 [3], 12 B": 12}
    assert {"erf", "mul.Tensor"} < set(picture.boxes[51].lines)
    reason, source = picture.boxes[1].facts[0].rows[2:]
    assert reason == ("reason", "its operator is excluded by the caller")
    assert source[1].endswith("in forward: x = torch.cumsum(x, 0)")
    page = doubles.to_html("Doubles")
    assert "its operator is excluded by the caller" in page
    assert "</html>" in page


def test_a_size_without_a_bound_is_drawn_and_an_export_draws_nothing():
    batch = torch.export.Dim("batch", min=2)
    program = torch.export.export(Doubles(), (torch.randn(3),), dynamic_shapes=({0: batch},))
    partitioner = reference()
    (box,) = (b for b in partitioner.explain(program).picture.boxes if b.title == "x")
    assert box.lines[0].endswith("], no upper bound")
    to_edge_transform_and_lower(program, partitioner=[partitioner])
    assert not partitioner.report.picture.boxes


def test_engines_in_a_branch_are_drawn_below_the_operator_that_calls_it():
    model = Function(lambda x: torch.cond(x.sum() > 0, lambda x: x.relu() + 1, torch.sin, (x,)))
    picture = explain(torch.export.export(model, (torch.randn(3),))).picture
    titles = [box.title for box in picture.boxes]
    found = [
        list(text)
        for (start, end), text in picture.arrows.items()
        if "cond" in titles[start] and "cond" in titles[end]
    ]
    assert found == [["branch cond/true"], ["branch cond/false"]]


def test_built_engines_say_what_a_call_launches():
    model = Function(lambda x: torch.cumsum(x * 2 + 1, 0) * 3)
    program = torch.export.export(model, (torch.randn(4, 4),))
    partitioner = TensorRTPartitioner(builder="tensorrt_rtx", excluded_ops=["aten.cumsum"])
    assert "kernel" not in str(partitioner.explain(program))
    lower(program, partitioner=partitioner)
    report = partitioner.report
    assert list(report.kernels) == ["tensorrt_0", "tensorrt_1"]
    lines = [line for line in str(report).splitlines() if "kernel" in line]
    assert len(lines) == 2
    for number, line in enumerate(lines):
        assert line.startswith(f"tensorrt_{number}: 1 kernel, ")
        assert " read and written in a call, of which " in line
    (table,) = (table for table in report.tables() if table.title == "What a call launches")
    assert [f"{name}: {text}" for name, text in table.rows] == lines


def test_equal_engines_are_each_in_the_report():
    model = Function(lambda x: torch.cumsum(torch.cumsum(x * 2, 0) * 2, 0) * 2)
    program = torch.export.export(model, (torch.randn(4, 4),))
    partitioner = TensorRTPartitioner(builder="tensorrt_rtx", excluded_ops=["aten.cumsum"])
    lower(program, partitioner=partitioner)
    assert len(partitioner.report.kernels) == len(partitioner.report.partitions) == 3
    assert len(set(partitioner.report.kernels.values())) == 1


def test_other_builders_engines_are_not_in_the_report():
    partitioner = reference()
    lower(export("mlp"), partitioner=partitioner)
    assert partitioner.report.kernels == {}
    assert "kernel" not in str(partitioner.report)
