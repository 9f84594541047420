"""TensorRT-RTX's own parser and builder take the payloads, on a machine without a GPU."""

from __future__ import annotations

import pytest
import torch
from torch.export import Dim

from tests.support.lowering import export, lower
from tests.support.models import Function
from tests.support.onnx.comparison import HAS_PARSER
from tests.support.onnx.payloads import of_program
from tests.support.sampled import chosen
from trt_et.engines.rtx_network import build_rtx_engine
from trt_et.runtime.networks import build_program

pytestmark = pytest.mark.skipif(not HAS_PARSER, reason="tensorrt-rtx is not installed")


@pytest.mark.parametrize("name", chosen(["cnn", "vit", "outputs"], "cnn", "outputs"))
def test_a_supported_model_is_built(name):
    _, (engine,) = build_program(lower(export(name), builder="onnx"), build_rtx_engine)
    assert len(engine.blob) > 10_000


def test_a_cumulative_sum_and_profiles_are_built():
    sizes = (({1: Dim("n", min=1, max=32)},),)
    model = Function(lambda x: (x * 2).cumsum(1).softmax(-1))
    program = torch.export.export(model, (torch.randn(2, 8),), dynamic_shapes=sizes)
    name = program.graph_signature.user_inputs[0]
    profiles = [{name: {1: (1, 1, 4)}}, {name: {1: (1, 16, 32)}}]
    pte = lower(program, builder="onnx", optimization_profiles=profiles)
    (payload,) = of_program(pte)
    shapes = [[list(shape) for shape in p["input0"]] for p in payload.info.network["profiles"]]
    assert shapes == [[[2, 1], [2, 1], [2, 4]], [[2, 1], [2, 16], [2, 32]]]
    assert build_program(pte, build_rtx_engine)


def test_weights_of_equal_bytes_and_different_sizes_are_built():
    class Zeros(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("floats", torch.zeros(1024))
            self.register_buffer("rows", torch.zeros(512, dtype=torch.int64))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (x + self.floats)[:, self.rows] * 2

    program = torch.export.export(Zeros(), (torch.randn(2, 1024),))
    pte = lower(program, builder="onnx")
    (payload,) = of_program(pte)
    assert len(payload.weights) == 1
    assert build_program(pte, build_rtx_engine)
