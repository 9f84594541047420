"""Weights of 4 bits are ONNX's int4, in models of opset 21."""

from __future__ import annotations

from collections import Counter

import onnx
import pytest
import torch
from torch import nn
from torchao.quantization import IntxWeightOnlyConfig, quantize_
from torchao.quantization.granularity import PerGroup
from torchao.quantization.quant_primitives import MappingType

from tests.conversion.onnx.test_equal import assert_equal
from tests.support.lowering import lower
from tests.support.onnx.payloads import Payload, of_program

INT4 = onnx.TensorProto.INT4
SIZE = 48 * 256


def program(group: int, dtype: torch.dtype = torch.float32, **how) -> torch.export.ExportedProgram:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(256, 48), nn.GELU(), nn.Linear(48, 20)).eval().to(dtype)
    config = IntxWeightOnlyConfig(torch.int4, PerGroup(group), **how)
    quantize_(model, config, lambda module, _: getattr(module, "in_features", 0) == 256)
    with torch.no_grad():
        return torch.export.export(model, (torch.randn(3, 256, dtype=dtype),))


def payload_of(exported: torch.export.ExportedProgram) -> Payload:
    (payload,) = of_program(lower(exported, builder="onnx"))
    return payload


def int4_sizes(payload: Payload) -> list[int]:
    held = [tensor for tensor in payload.proto.graph.initializer if tensor.data_type == INT4]
    return [int(entry.value) for t in held for entry in t.external_data if entry.key == "length"]


@pytest.mark.parametrize(
    ("group", "dtype"), [(32, torch.float32), (64, torch.float16), (128, torch.float32)], ids=str
)
def test_a_weight_takes_half_a_byte_a_number(group, dtype):
    exported = program(group, dtype)
    assert_equal(exported)
    payload = payload_of(exported)
    assert int4_sizes(payload) == [SIZE // 2]
    sizes = Counter(map(len, payload.weights.values()))
    assert (sizes[SIZE // 2], sizes[SIZE]) == (1, 0)
    assert payload.info.library_version.endswith(" opset 21")
    (blocks,) = [n for n in payload.proto.graph.node if n.op_type == "DequantizeLinear"]
    found = {attribute.name: attribute.i for attribute in blocks.attribute}
    assert (found["axis"], found["block_size"]) == (1, group)


def test_groups_with_zero_points_are_int8():
    exported = program(64, mapping_type=MappingType.ASYMMETRIC)
    assert_equal(exported)
    payload = payload_of(exported)
    kinds = Counter(tensor.data_type for tensor in payload.proto.graph.initializer)
    assert not kinds[INT4]
    assert SIZE in map(len, payload.weights.values())


def test_a_cached_payload_has_its_int4_weight(tmp_path):
    exported = program(64)
    first, second = (
        lower(exported, builder="onnx", cache=tmp_path, progress=False) for _ in range(2)
    )
    assert first == second
