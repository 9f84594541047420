"""The plan without the building."""

from __future__ import annotations

import pytest
import torch
from executorch.exir import to_edge_transform_and_lower

from tests.support.lowering import export, export_with_batch, lower
from tests.support.programs.quantized_models import quantized
from trt_et import TensorRTPartitioner


class Unbuilt:
    name = "reference"

    def build(self, request):
        raise AssertionError("explain() builds nothing")


@pytest.mark.parametrize("name", ["vit", "split"])
def test_the_plan_is_what_lowering_does(name):
    program = export(name)
    planned = TensorRTPartitioner(builder=Unbuilt(), excluded_ops=[torch.ops.aten.cumsum]).explain(
        program
    )
    partitioner = TensorRTPartitioner(builder="reference", excluded_ops=[torch.ops.aten.cumsum])
    lower(program, partitioner=partitioner)
    assert planned == partitioner.report


def test_boundaries_and_weights_are_counted_in_bytes():
    report = TensorRTPartitioner(builder="reference").explain(export("mlp"))
    (partition,) = report.partitions
    assert [(t.dtype, t.shape, t.nbytes) for t in partition.inputs] == [
        (torch.float32, (4, 16), 4 * 16 * 4)
    ]
    assert [(t.shape, t.nbytes) for t in partition.outputs] == [((4, 4), 4 * 4 * 4)]
    weights = (16 * 32 + 32) + 2 * 32 + (32 * 32 + 32) + (32 * 4 + 4)
    assert partition.constant_bytes == weights * 4
    assert "tensorrt_0: 8 operators, 7,184 bytes of weights" in str(report)


def test_a_dynamic_boundary_counts_at_its_largest():
    report = TensorRTPartitioner(builder="reference").explain(export_with_batch("mlp"))
    assert report.partitions[0].inputs[0].shape == (8, 16)


def test_int8_products_that_are_computed_in_floats_are_reported_in_one_line(caplog):
    program, _ = quantized("residual", symmetric=False)
    TensorRTPartitioner(builder=Unbuilt()).explain(program)
    (line,) = [r.getMessage() for r in caplog.records if "computed in float" in r.getMessage()]
    assert "2 aten::convolution, 1 aten::linear" in line  # The first has as many negative inputs.
    assert "TensorRTQuantizer" in line
    caplog.clear()
    program, _ = quantized("residual", symmetric=True)
    TensorRTPartitioner(builder=Unbuilt()).explain(program)
    assert "computed in float" not in caplog.text


def test_what_selects_a_result_of_an_operator_on_the_cpu_has_a_reason():
    class Sorted(torch.nn.Module):
        def forward(self, x):
            values, indices = torch.ops.aten.sort(x)
            return values + 1, indices

    program = torch.export.export(Sorted(), (torch.randn(4, 8),))
    report = TensorRTPartitioner(builder=Unbuilt(), excluded_ops=["aten.sort"]).explain(program)
    reasons = {reason for _, operator, reason in report.not_delegated if "getitem" in operator}
    assert reasons == {"the operator whose result it selects stays on the CPU"}


class Doubles(torch.nn.Module):
    def forward(self, x):
        for _ in range(50):
            x = torch.cumsum(x, 0)
        return x.erf() * 2


def test_calls_with_one_reason_share_a_line_that_names_the_models_source():
    program = torch.export.export(Doubles(), (torch.randn(3),))
    report = TensorRTPartitioner(builder=Unbuilt(), excluded_ops=["aten.cumsum"]).explain(program)
    line, source = report.not_delegated_lines()
    assert line.startswith("not delegated: 50 x aten::cumsum.default: its operator is excluded")
    assert source.startswith("    at test_report.py:")
    assert source.endswith("in forward: x = torch.cumsum(x, 0)")
    assert report.not_delegated_lines(limit=1)[1].startswith("... and 1 more")
    assert str(report).splitlines()[0].startswith("tensorrt_0: 3 operators, ")


def test_a_notebook_shows_tables():
    program = torch.export.export(Doubles(), (torch.randn(3),))
    report = TensorRTPartitioner(builder=Unbuilt(), excluded_ops=["aten.cumsum"]).explain(program)
    html = report._repr_html_()
    assert html.count("<table>") == 2
    assert all(word in html for word in ("Engines", "tensorrt_0", "On the CPU", "aten::cumsum"))


def test_the_plan_is_a_graph_of_engines_and_operators_with_their_tensors():
    program = torch.export.export(Doubles(), (torch.randn(3),))
    report = TensorRTPartitioner(builder=Unbuilt(), excluded_ops=["aten.cumsum"]).explain(program)
    picture = report.picture
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
    page = report.to_html("Doubles")
    assert "its operator is excluded by the caller" in page
    assert "</html>" in page


def test_a_size_without_a_bound_is_drawn_and_an_export_draws_nothing():
    batch = torch.export.Dim("batch", min=2)
    program = torch.export.export(Doubles(), (torch.randn(3),), dynamic_shapes=({0: batch},))
    partitioner = TensorRTPartitioner(builder="reference")
    (box,) = (b for b in partitioner.explain(program).picture.boxes if b.title == "x")
    assert box.lines[0].endswith("], no upper bound")
    to_edge_transform_and_lower(program, partitioner=[partitioner])
    assert not partitioner.report.picture.boxes


class Branches(torch.nn.Module):
    def forward(self, x):
        return torch.cond(x.sum() > 0, lambda x: x.relu() + 1, lambda x: x * 2, (x,))


def test_engines_in_a_branch_are_drawn_below_the_operator_that_calls_it():
    program = torch.export.export(Branches(), (torch.randn(3),))
    picture = TensorRTPartitioner(builder=Unbuilt()).explain(program).picture
    titles = [box.title for box in picture.boxes]
    pairs = {
        (titles[start], titles[end]): list(text) for (start, end), text in picture.arrows.items()
    }
    found = {end: text for (start, end), text in pairs.items() if "cond" in start and "cond" in end}
    assert list(found.values()) == [["branch cond/true"], ["branch cond/false"]]
