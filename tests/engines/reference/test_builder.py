"""The reference builder: a partition as a nested ExecuTorch program."""

from __future__ import annotations

import logging

import torch
from torch import nn
from torch.nn import functional

from tests.support.lowering import blobs, lower, lower_case
from tests.support.simulated_gpus import check, load_runtime
from trt_et.engine_info import MAGIC_REFERENCE, decode_blob
from trt_et.engines.reference import builder as reference


def test_the_engine_is_a_program_of_its_own_and_marked_as_reference():
    from executorch.exir._serialize._program import deserialize_pte_binary

    (blob,) = blobs(lower_case("mlp"))
    decoded = decode_blob(blob)
    assert decoded.magic == MAGIC_REFERENCE
    assert decoded.info.is_reference
    program = deserialize_pte_binary(bytes(decoded.engine)).program
    (plan,) = program.execution_plan
    assert plan.delegates == []


def test_kernels_that_the_stock_runtime_lacks_are_named(caplog, monkeypatch):
    have = reference.cpu_kernels()
    monkeypatch.setattr(reference, "cpu_kernels", lambda: have - {"aten::tanh.out"})
    with caplog.at_level(logging.WARNING, "trt_et"):
        lower_case("mlp")
    (record,) = caplog.records
    assert "aten::tanh.out" in record.getMessage()
    assert "tensorrt_0" in record.getMessage()


def test_constants_of_two_decompositions_are_kept_apart():
    """hardswish is taken apart for the program, hardsigmoid for its engine: both lift constants."""
    from executorch.runtime import Runtime

    class Model(nn.Module):
        def forward(self, x):
            y = functional.hardswish(x) * 0.3 + functional.hardswish(x - 1)
            return y * functional.hardsigmoid(x) - functional.hardsigmoid(y)

    torch.manual_seed(0)
    x = torch.randn(3, 5)
    load_runtime()
    pte = lower(torch.export.export(Model(), (x,)))
    (found,) = Runtime.get().load_program(pte).load_method("forward").execute([x])
    torch.testing.assert_close(found, Model()(x))


def test_a_pointwise_convolution_of_a_channels_last_model_runs():
    class Pointwise(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Conv2d(4, 8, 1)

        def forward(self, x):
            return self.layer(x.reshape(2, 6, 6, 4).permute(0, 3, 1, 2)) * 2

    model = Pointwise().eval().to(memory_format=torch.channels_last)
    x = torch.randn(2, 36, 4)
    program = torch.export.export(model, (x,))
    check(lower(program, builder="reference"), model, (x,))
