"""What TensorRT's ONNX parser does not take stays on the CPU, by rules that need no TensorRT."""

from __future__ import annotations

import pytest
import torch
from onnx import TensorProto, helper

from tests.support.models import Function
from trt_et import TensorRTPartitioner
from trt_et.conversion.onnx.check import check_model
from trt_et.errors import ConversionError

X = torch.randn(3, 4, 5, generator=torch.Generator().manual_seed(0))
LEFT = {
    "no operator": (lambda x: x.int() & 6, "has no operator BitwiseAnd"),
    "float64": (lambda x: x.double().sin().float(), "float64"),
    "indices of a pooling": (
        lambda x: torch.nn.functional.max_pool2d(x, 2, return_indices=True)[1].float(),
        "no MaxPool that returns indices",
    ),
    "an input of 9 dimensions": (
        lambda x: x.reshape(3, 1, 2, 1, 2, 1, 5, 1, 1).sum((1, 3, 5, 7, 8)),
        "a tensor of it has 9 dimensions",
    ),
    "a scatter to one number": (
        lambda x: x.sum().scatter(0, torch.tensor(0), x[0, 0, 0]),
        "no ScatterElements of a single number",
    ),
    "a scatter of more numbers than there are": (
        lambda x: x[0, :, :2].scatter(0, torch.arange(6)[:, None].expand(6, 2) % 4, 1.0),
        "at most as many numbers",
    ),
    "a mean of scattered integers": (
        lambda x: x[0].int().scatter_reduce(0, torch.zeros(1, 5).long(), x[1].int(), "mean"),
        "scatter_reduce",
    ),
    "antialiasing": (
        lambda x: torch.nn.functional.interpolate(x[None], 2, mode="bilinear", antialias=True),
        "no Resize with antialiasing",
    ),
    "a dtype": (lambda x: torch.sin(x.to(torch.int16).float()), "int16"),
}


@pytest.mark.parametrize("case", LEFT)
def test_it_stays_on_the_cpu_with_the_reason(case):
    function, reason = LEFT[case]
    program = torch.export.export(Function(lambda x: function(x) * 2.0), (X,))
    report = TensorRTPartitioner(builder="onnx").explain(program)
    assert any(reason in why for _, _, why in report.not_delegated), str(report)
    assert report.partitions


def test_volumes_are_not_sampled_at_a_grid():
    sizes = {"x": [1, 1, 3, 4, 5], "grid": [1, 2, 2, 2, 3], "y": [1, 1, 2, 2, 2]}
    x, grid, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in sizes.items())
    node = helper.make_node("GridSample", ["x", "grid"], ["y"], name="node_sampled")
    model = helper.make_model(
        helper.make_graph([node], "partition", [x, grid], [y]),
        opset_imports=[helper.make_opsetid("", 20)],
    )
    with pytest.raises(ConversionError, match="samples images only"):
        check_model(model)
