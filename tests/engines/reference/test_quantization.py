"""What the reference builder computes for quantize operators is what torch's own give."""

from __future__ import annotations

import pytest
import torch
from executorch.exir import EdgeCompileConfig  # noqa: F401  (registers the operators)

from trt_et.engines.reference.quantization import QUANTIZATION_PARTS

operators = torch.ops.quantized_decomposed


def part(name: str):
    return QUANTIZATION_PARTS[f"quantized_decomposed::{name}"]


# Halves, which round to even; beyond both ends; and ordinary numbers.
NUMBERS = torch.cat([torch.arange(-300, 300) * 0.125, torch.randn(40) * 10]).reshape(4, 160)


@pytest.mark.parametrize("zero_point", [0, -3, -128])
@pytest.mark.parametrize("limits", [(-128, 127), (-127, 127)])
@pytest.mark.parametrize("scale", [0.25, 0.1])
def test_per_tensor(zero_point, limits, scale):
    how = (scale, zero_point, *limits, torch.int8)
    q = part("quantize_per_tensor")(NUMBERS, *how)
    assert torch.equal(q, operators.quantize_per_tensor.default(NUMBERS, *how))
    for dtype in (None, torch.float16):
        found = part("dequantize_per_tensor")(q, *how, out_dtype=dtype)
        expected = operators.dequantize_per_tensor.default(q, *how, out_dtype=dtype)
        assert found.dtype is expected.dtype
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=0)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("zero_point", [0, 7])
def test_per_channel(axis, zero_point):
    size = NUMBERS.shape[axis]
    scales = torch.linspace(0.1, 0.5, size)
    how = (scales, torch.full((size,), zero_point), axis, -127, 127, torch.int8)
    q = part("quantize_per_channel")(NUMBERS, *how)
    assert torch.equal(q, operators.quantize_per_channel.default(NUMBERS, *how))
    found = part("dequantize_per_channel")(q, *how)
    assert torch.equal(found, operators.dequantize_per_channel.default(q, *how))


def test_zero_points_may_be_missing():
    q = torch.randint(-128, 127, (4, 6), dtype=torch.int8)
    how = (torch.rand(4), None, 0, -128, 127, torch.int8)
    found = part("dequantize_per_channel")(q, *how)
    assert torch.equal(found, operators.dequantize_per_channel.default(q, *how))
