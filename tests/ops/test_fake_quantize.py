"""Fake quantization in float arithmetic: the numbers that int8 and fp8 have."""

from __future__ import annotations

import pytest
import torch

from tests.support.modelopt.models import E4M3, expected_fp8, expected_int
from trt_et.ops.fake_quantize import FAKE_QUANTIZE, fake_quantize


def test_fp8_rounds_as_a_cast_does_at_every_number_and_every_half():
    numbers = torch.arange(256, dtype=torch.uint8).view(E4M3).float()
    numbers = numbers[~numbers.isnan()].sort().values
    halves = (numbers[1:] + numbers[:-1]) / 2
    points = torch.cat([numbers, halves])
    beside = [torch.nextafter(points, torch.tensor(s * float("inf"))) for s in (1, -1)]
    x = torch.cat([points, *beside]).clamp(-448, 448)
    found = fake_quantize(x, torch.tensor(448.0), 8, 4)
    assert torch.equal(found, x.to(E4M3).float())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_fp8_scales_to_the_largest_number(dtype):
    torch.manual_seed(0)
    x = torch.randn(1000, dtype=dtype)
    found = fake_quantize(x, torch.tensor(1.5, dtype=dtype), 8, 4)
    assert found.dtype is dtype
    assert torch.equal(found, expected_fp8(x, torch.tensor(1.5)))
    assert found.abs().max().item() == pytest.approx(1.5)


@pytest.mark.parametrize("shape", [(), (5, 1)])
@pytest.mark.parametrize("bits", [8, 4])
def test_int_has_a_range_for_the_tensor_or_for_each_channel(shape, bits):
    torch.manual_seed(0)
    x, amax = torch.randn(5, 200), torch.rand(shape) + 0.5
    found = fake_quantize(x, amax, bits, 0, False, False)
    torch.testing.assert_close(found, expected_int(x, amax, bits))


def test_a_narrow_range_is_symmetric_and_an_unsigned_one_has_no_negative_numbers():
    x, amax = torch.tensor([-2.0, -1.0, 0.3, 2.0]), torch.tensor(1.0)
    assert fake_quantize(x, amax, 8, 0, False, True).min() == -1
    assert fake_quantize(x, amax, 8, 0, False, False).min() == -128 / 127
    unsigned = fake_quantize(x, amax, 8, 0, True, False)
    torch.testing.assert_close(unsigned, torch.tensor([0.0, 0.0, 76 / 255, 1.0]))


def test_a_channel_of_zeros_stays_zeros():
    x, amax = torch.tensor([[0.0, 0.0], [1.0, -1.0]]), torch.tensor([[0.0], [1.0]])
    assert torch.equal(fake_quantize(x, amax, 8, 0, False, False), x)
    assert torch.equal(fake_quantize(x * 0, amax[0], 8, 4), x * 0)
    # So do numbers of a tensor that calibration saw as zeros.
    assert torch.equal(fake_quantize(x, amax[0], 8, 0, False, False), x * 0)


def test_the_operator_computes_it():
    x, amax = torch.randn(10), torch.tensor(2.0)
    assert torch.equal(FAKE_QUANTIZE(x, amax, 8, 4, False, False), fake_quantize(x, amax, 8, 4))
