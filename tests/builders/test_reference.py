"""The reference builder: a partition as a nested ExecuTorch program."""

from __future__ import annotations

import logging

import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.lowering_helpers import blobs, lower, lower_case
from trt_et.engine_info import MAGIC_REFERENCE, decode_blob


def test_the_engine_is_a_program_of_its_own_and_marked_as_reference():
    from executorch.exir._serialize._program import deserialize_pte_binary

    (blob,) = blobs(lower_case("mlp"))
    decoded = decode_blob(blob)
    assert decoded.magic == MAGIC_REFERENCE
    assert decoded.info.is_reference
    program = deserialize_pte_binary(bytes(decoded.engine)).program
    (plan,) = program.execution_plan
    assert plan.delegates == []


def test_kernels_that_the_stock_runtime_lacks_are_named(caplog):
    class Pool(nn.Module):
        def forward(self, x):
            return functional.avg_pool3d(x, 2)

    with caplog.at_level(logging.WARNING, "trt_et"):
        lower(torch.export.export(Pool(), (torch.randn(1, 1, 4, 4, 4),)))
    (record,) = caplog.records
    assert "aten::avg_pool3d.out" in record.getMessage()
    assert "tensorrt_0" in record.getMessage()


@pytest.mark.parametrize("name", ["mlp", "cnn", "vit", "channels_last", "outputs"])
def test_supported_models_need_no_other_kernel(name, caplog):
    with caplog.at_level(logging.WARNING, "trt_et"):
        lower_case(name)
    assert caplog.records == []
