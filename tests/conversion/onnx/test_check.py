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
    "a dtype": (lambda x: torch.sin(x.to(torch.int16).float()), "int16"),
}


@pytest.mark.parametrize("case", LEFT)
def test_it_stays_on_the_cpu_with_the_reason(case):
    function, reason = LEFT[case]
    program = torch.export.export(Function(lambda x: function(x) * 2.0), (X,))
    report = TensorRTPartitioner(builder="onnx").explain(program)
    assert any(reason in why for _, _, why in report.not_delegated), str(report)
    assert report.partitions


IMAGES, VOLUMES = {"x": [1, 1, 4, 5]}, {"x": [1, 1, 3, 4, 5]}
REFUSED = {
    "volumes": ("GridSample", VOLUMES | {"grid": [1, 2, 2, 2, 3]}, {}, "samples images only"),
    "antialiasing": (
        "Resize",
        IMAGES | {"": [], "scales": [4]},
        {"antialias": 1, "mode": "linear"},
        "no Resize with antialiasing",
    ),
    "no operator": ("Hardmax", IMAGES, {}, "has no operator Hardmax"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_node_that_the_parser_does_not_take_is_refused(case):
    operator, sizes, attributes, reason = REFUSED[case]
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in sizes.items()
        if name
    ]
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    node = helper.make_node(operator, [*sizes], ["y"], name="node_refused", **attributes)
    model = helper.make_model(
        helper.make_graph([node], "partition", inputs, [result]),
        opset_imports=[helper.make_opsetid("", 20)],
    )
    with pytest.raises(ConversionError, match=reason):
        check_model(model)
