"""Programs that the quantizer made become engines and run."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from torch import nn

from tests.support.lowering import blobs, lower, reference
from tests.support.mended import is_fixed
from tests.support.programs.pt2e import quantize, quantizer
from tests.support.programs.quantized_models import MODELS, Mlp
from tests.support.programs.quantized_networks import Network, needs_rtx
from tests.support.sampled import sampled
from tests.support.simulated_gpus import check
from trt_et import TensorRTPartitioner
from trt_et.conversion import operator
from trt_et.engines.tensorrt_rtx import TensorRTRTXBuilder
from trt_et.quantizer import fp8, int8, int8_weight_only

CONFIGS = {"int8": int8(), "int8 weights": int8_weight_only(), "fp8": fp8()}
CASES = [(name, config) for name in MODELS for config in CONFIGS]


@cache
def made(name: str, config: str):
    torch.manual_seed(0)
    model, shape = MODELS[name]
    inputs = (torch.randn(shape),)
    return quantize(model(), inputs, quantizer(CONFIGS[config])), inputs


@pytest.mark.parametrize("case", sampled(CASES, 16), ids="-".join)
def test_one_engine_computes_what_the_converted_program_computes(case, caplog):
    program, inputs = made(*case)
    model, partitioner = program.module(), reference()
    pte = lower(program, partitioner=partitioner)
    # A number half way between two steps may be rounded to either.
    step = 0.02 * float(model(*inputs).detach().abs().max())
    check(pte, model, inputs, inputs, atol=step, rtol=0)
    assert not partitioner.report.not_delegated
    assert len(partitioner.report.partitions) == 1
    assert "computed in float" not in caplog.text


@needs_rtx
@pytest.mark.parametrize("case", sampled(CASES), ids="-".join)
def test_tensorrt_rtx_builds_it(case):
    assert len(blobs(lower(made(*case)[0], builder="tensorrt_rtx"))) == 1


@pytest.mark.long
@needs_rtx
def test_convolutions_that_tensorrt_rtx_computes_in_float_are_counted(caplog):
    TensorRTPartitioner(builder="tensorrt_rtx").explain(made("residual", "int8")[0])
    lines = [r.getMessage() for r in caplog.records if "computed in float" in r.getMessage()]
    if is_fixed("quantized convolution"):
        assert not lines
    else:
        assert "3 aten::convolution. The builder's library has no int8 kernels" in lines[0]
    caplog.clear()
    TensorRTPartitioner(builder="tensorrt_rtx").explain(made("residual", "int8 weights")[0])
    TensorRTPartitioner(builder="tensorrt_rtx").explain(made("block", "int8")[0])
    assert "computed in float" not in caplog.text


def test_tensorrt_rtx_has_int8_convolutions_from_1_7_on(monkeypatch):
    for version, lacks in (("1.6.1.120", True), ("1.7.1.116", False)):
        monkeypatch.setattr(operator, "version", lambda _, version=version: version)
        monkeypatch.setattr(operator, "engine_library", lambda: "tensorrt_rtx")
        operator._is_installed.cache_clear()
        lacking = TensorRTRTXBuilder().without_int8
        assert (torch.ops.aten.convolution.default in lacking) == lacks
    monkeypatch.undo()
    operator._is_installed.cache_clear()


@needs_rtx
@pytest.mark.parametrize(
    ("model", "config"),
    [
        (Mlp(1024), "int8"),
        (Mlp(1024), "int8 weights"),
        (Mlp(1024), "fp8"),
        (nn.Embedding(32768, 128), "int8"),
    ],
    ids=str,
)
def test_the_engine_holds_the_weights_in_8_bits(model, config):
    inputs = (torch.randn(4, 1024) if isinstance(model, Mlp) else torch.arange(64),)
    program = quantize(model, inputs, quantizer(CONFIGS[config]))
    (blob,) = blobs(lower(program, builder="tensorrt_rtx"))
    assert len(blob) < 0.30 * 4 * sum(p.numel() for p in model.parameters())


@needs_rtx
def test_every_input_of_a_product_is_a_dequantize_layer():
    kinds = Network(made("block", "int8")[0]).kinds
    # Four linear layers with weights, two products of attention.
    assert kinds["MATRIX_MULTIPLY"] == 6
    assert kinds["DEQUANTIZE"] == 12
