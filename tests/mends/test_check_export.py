"""A forgotten ``model.eval()`` or ``convert_pt2e`` is reported."""

from __future__ import annotations

import contextlib
import logging

import pytest
import torch
from executorch.exir import to_edge_transform_and_lower
from torch import nn
from torch._export.verifier import SpecViolationError
from torch.export import Dim
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

from trt_et import OptionError, PartitionError, TensorRTPartitioner
from trt_et.mends.check_export import check_converted, warn_training_mode
from trt_et.quantizer import TensorRTQuantizer, int8


def warnings_of(model: nn.Module, caplog) -> list[str]:
    program = torch.export.export(model, (torch.randn(2, 4, 8),))
    with caplog.at_level(logging.WARNING):
        caplog.clear()
        warn_training_mode(program)
    return caplog.messages


@pytest.mark.parametrize("layer", [nn.Dropout(0.1), nn.BatchNorm1d(4), nn.RReLU()])
def test_a_model_in_training_mode_is_reported(layer, caplog):
    model = nn.Sequential(nn.Linear(8, 8), layer)
    (message,) = warnings_of(model.train(), caplog)
    assert "1 operator(s) are in training mode" in message
    assert "Call model.eval() before torch.export" in message
    assert warnings_of(model.eval(), caplog) == []


def test_the_partitioner_reports_it(caplog):
    model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.1)).train()
    program = torch.export.export(model, (torch.randn(2, 8),))
    with caplog.at_level(logging.WARNING):
        TensorRTPartitioner(builder="reference").explain(program)
    assert "training mode" in caplog.text


def test_explain_names_the_program_that_it_takes():
    with pytest.raises(OptionError, match=r"got Linear; expected an exported program: explain\("):
        TensorRTPartitioner(builder="reference").explain(nn.Linear(2, 2))


def test_a_prepared_model_is_refused_and_a_converted_one_is_not():
    inputs = (torch.randn(2, 8),)
    model = torch.export.export(nn.Linear(8, 8).eval(), inputs).module()
    prepared = prepare_pt2e(model, TensorRTQuantizer().set_global(int8()))
    prepared(*inputs)
    program = torch.export.export(prepared, inputs)
    with pytest.raises(
        PartitionError, match=r"2 observer.*activation_post_process_0; .*convert_pt2e"
    ):
        TensorRTPartitioner(builder="reference").explain(program)
    check_converted(torch.export.export(convert_pt2e(prepared), inputs))


class Unknown(nn.Module):
    def forward(self, x):
        return torch.lgamma(x.abs() + 1) * 2


def test_an_operator_that_executorch_refuses_is_named_with_its_line(caplog):
    program = torch.export.export(Unknown(), (torch.randn(2, 3),))
    with caplog.at_level(logging.WARNING), pytest.raises(SpecViolationError):
        TensorRTPartitioner(builder="reference").explain(program)
    assert "calls aten.lgamma.default (test_check_export.py:" in caplog.text


def test_operators_that_executorch_decomposes_are_not_reported(caplog):
    class Known(nn.Module):
        def forward(self, x):
            y = nn.functional.gelu(x).max() + x.var() + nn.functional.softplus(x).cumsum(0)
            return nn.functional.interpolate(y[None, None], scale_factor=2.0, mode="bilinear")

    program = torch.export.export(Known(), (torch.randn(2, 3),))
    with caplog.at_level(logging.WARNING):
        TensorRTPartitioner(builder="reference").explain(program)
    assert "Edge dialect" not in caplog.text


class Resized(nn.Module):
    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x):
        return nn.functional.interpolate(x, scale_factor=self.factor, mode="bicubic")


@pytest.mark.parametrize("factor", [1.5, 2.0])
def test_bicubic_factors_that_executorch_refuses_are_named(factor, caplog):
    sizes = {2: Dim("h", min=4, max=12)}
    program = torch.export.export(
        Resized(factor), (torch.randn(1, 2, 6, 8),), dynamic_shapes=(sizes,)
    )
    refused = pytest.raises(AssertionError) if factor % 1 else contextlib.nullcontext()
    with caplog.at_level(logging.WARNING), refused:
        TensorRTPartitioner(builder="reference").explain(program)
    assert ("resizes dynamic sizes by" in caplog.text) is bool(factor % 1)


@pytest.mark.parametrize("kind", ["all", "0.bias", "1.running_mean"])
def test_a_weight_without_values_is_named_before_anything_else(kind):
    model, x = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)).eval(), torch.randn(2, 4)
    if kind == "all":
        program, name = (
            torch.export.export(model.to("meta"), (x.to("meta"),)),
            "0.weight and 6 more",
        )
    else:
        program, name = torch.export.export(model, (x,)), kind
        program.state_dict[name] = program.state_dict[name].to("meta")
    with pytest.raises(PartitionError, match=f"^weight {name}: on the meta device, without values"):
        to_edge_transform_and_lower(program, partitioner=[TensorRTPartitioner(builder="reference")])
