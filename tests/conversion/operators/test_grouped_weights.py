"""Weights of 4 bits with scales of groups stay 4 bits in engines."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torchao.quantization import IntxWeightOnlyConfig, quantize_
from torchao.quantization.granularity import PerGroup

from tests.support.lowering import module_of
from tests.support.programs.quantized_networks import Network, needs_rtx
from trt_et.conversion.operators.grouped_weights import (
    GROUPED_WEIGHTS,
    dequantize_groups,
    pack_int4,
)
from trt_et.conversion.rewriting import rewrite
from trt_et.options import BuildOptions
from trt_et.partition.node_choice import NodeChoice
from trt_et.passes.quantization.lower_quantizers import lower_quantize_ops

WIDTH = 512


def program(group: int, dtype: torch.dtype = torch.float32) -> torch.export.ExportedProgram:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH, bias=False)).eval().to(dtype)
    quantize_(model, IntxWeightOnlyConfig(torch.int4, PerGroup(group)))
    with torch.no_grad():
        exported = torch.export.export(model, (torch.randn(4, WIDTH, dtype=dtype),))
    return lower_quantize_ops(exported, NodeChoice(()), BuildOptions())


class Groups(nn.Module):
    """What torchao makes of a weight, written by hand."""

    def __init__(self, low: int, high: int, group: int = 32, zero: int = 0) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.register_buffer("weight", torch.randint(low, high + 1, (8, 128), dtype=torch.int8))
        self.register_buffer("scale", torch.rand(8, 128 // group))
        zeros = torch.full((8, 128 // group), zero, dtype=torch.int8)
        self.register_buffer("zeros", zeros)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, groups = self.scale.shape
        weight = self.weight.reshape(rows, groups, -1).to(torch.float32)
        zeros = self.zeros.reshape(rows, groups, 1).to(torch.float32)
        weight = (weight - zeros) * self.scale.reshape(rows, groups, 1)
        return x @ weight.reshape(rows, -1).t()


def rewritten(model: nn.Module) -> tuple[bool, torch.Tensor]:
    """Whether the weight is one call now, and what the graph computes."""
    x = torch.randn(2, 128, generator=torch.Generator().manual_seed(1))
    module = module_of(model, x)
    rewrite(module, GROUPED_WEIGHTS)
    found = any(node.target is dequantize_groups for node in module.graph.nodes)
    result = module(x)
    return found, result[0] if isinstance(result, (tuple, list)) else result


@pytest.mark.parametrize(
    ("model", "kept", "reason"),
    [
        (Groups(-8, 7), True, ""),
        (Groups(-8, 7, group=128), True, ""),
        (Groups(-9, 7), False, ""),
        (Groups(-8, 7, group=16), False, "groups of 16"),
        (Groups(-8, 7, zero=1), False, "zero points"),
    ],
)
def test_groups_of_4_bits_are_one_call_with_the_same_result(model, kept, reason, caplog):
    x = torch.randn(2, 128, generator=torch.Generator().manual_seed(1))
    found, result = rewritten(model)
    assert found is kept
    torch.testing.assert_close(result, model(x))
    assert reason in caplog.text


def test_the_first_of_two_numbers_is_in_the_lower_half_of_a_byte():
    assert pack_int4(torch.tensor([[1, -1], [-8, 7]], dtype=torch.int8)).tolist() == [0xF1, 0x78]


@needs_rtx
@pytest.mark.parametrize("group", [32, 64, 128])
def test_a_weight_of_torchao_is_a_4_bit_constant_and_a_dequantize_layer(group):
    network = Network(program(group))
    assert network.kinds["DEQUANTIZE"] == 1
    (weight,) = (w for name, w in network.constants.items() if name.endswith("_weight"))
    assert str(weight.dtype) == "DataType.INT4"
    assert weight.size == WIDTH * WIDTH
