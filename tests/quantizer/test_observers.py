"""Scales from calibration, and observers that have seen no data."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e

from tests.support.programs.pt2e import prepared, quantize, quantizer, scales
from trt_et import OptionError
from trt_et.quantizer import fp8, int8, int8_weight_only
from trt_et.quantizer.observers import EntropyObserver, SymmetricHistogramObserver

SYMMETRIC = {
    "dtype": torch.int8,
    "qscheme": torch.per_tensor_symmetric,
    "quant_min": -128,
    "quant_max": 127,
}
HISTOGRAMS = (SymmetricHistogramObserver, EntropyObserver)


def limit(observer, *data: torch.Tensor) -> float:
    """Return the largest number of the range that an observer chooses."""
    made = observer(**SYMMETRIC)
    for each in data:
        made(each)
    scale, zero_point = made.calculate_qparams()
    assert not zero_point.any()
    return scale.item() * 127.5


@pytest.mark.parametrize("config", [int8(), int8(calibration="entropy"), fp8()])
def test_an_observer_without_data_is_an_error_that_names_its_tensor(config):
    observed = prepared(nn.Linear(6, 4), (torch.randn(2, 6),), quantizer(config))
    with pytest.raises(OptionError, match=r"the input .*input.* of linear has not been calibrated"):
        convert_pt2e(observed)


def test_data_that_is_not_finite_is_an_error_that_names_its_tensor():
    observed = prepared(nn.Linear(6, 4), (torch.randn(2, 6),), quantizer())
    observed(torch.full((2, 6), torch.inf))
    with pytest.raises(OptionError, match=r"of linear is .*inf; expected finite"):
        convert_pt2e(observed)


@pytest.mark.parametrize("calibration", ["histogram", "entropy"])
@pytest.mark.parametrize("number", [torch.nan, torch.inf])
def test_a_histogram_of_numbers_that_are_not_finite_names_its_tensor(calibration, number):
    inputs = (torch.randn(2, 6),)
    observed = prepared(nn.Linear(6, 4), inputs, quantizer(int8(calibration=calibration)))
    observed(*inputs)
    with pytest.raises(OptionError, match=r"the input .*of linear has .* not finite"):
        observed(torch.full((2, 6), number))


def test_a_tensor_that_calibration_saw_as_zeros_is_named(caplog):
    observed = prepared(nn.Linear(6, 4), (torch.randn(2, 6),), quantizer())
    observed(torch.zeros(2, 6))
    convert_pt2e(observed)
    assert "of linear was 0 in calibration" in caplog.text


def test_training_that_saw_no_data_is_an_error():
    from torchao.quantization.pt2e.quantize_pt2e import prepare_qat_pt2e

    exported = torch.export.export(nn.Linear(6, 4), (torch.randn(2, 6),)).module()
    observed = prepare_qat_pt2e(exported, quantizer(int8(is_qat=True)))
    with pytest.raises(OptionError, match="of linear has not been calibrated"):
        convert_pt2e(observed)


def test_weights_alone_need_no_calibration():
    torch.manual_seed(0)
    inputs = (torch.randn(2, 6),)
    layer = nn.Linear(6, 4)
    converted = convert_pt2e(prepared(layer, inputs, quantizer(int8_weight_only())))
    largest = layer.weight.detach().abs().amax(1)
    torch.testing.assert_close(converted._scale_0, largest / 127)
    torch.testing.assert_close(converted(*inputs), layer(*inputs), atol=0.02, rtol=0)


def test_minmax_keeps_the_largest_number():
    data = torch.randn(4, 6)
    scale, _ = scales(quantize(nn.Linear(6, 4), (data,)), "linear")
    assert scale == pytest.approx(data.abs().max().item() / 127.5)


@pytest.mark.parametrize("observer", HISTOGRAMS)
def test_an_outlier_is_cut_off(observer):
    torch.manual_seed(0)
    data = torch.randn(1_000_000)
    data[0] = -100.0
    assert 2.5 < limit(observer, data) < 25


@pytest.mark.parametrize("observer", HISTOGRAMS)
def test_numbers_without_outliers_keep_their_range(observer):
    data = torch.linspace(-3, 3, 100_000)
    assert limit(observer, data[:50_000], data[50_000:]) == pytest.approx(3, rel=0.05)


def test_a_histogram_has_the_smallest_squared_error():
    torch.manual_seed(0)
    data = torch.randn(100_000) ** 3

    def error(largest: float) -> float:
        scale = largest / 127.5
        return float((data - (data / scale).round().clamp(-128, 127) * scale).square().mean())

    least = min(error(largest) for largest in range(5, 95))
    assert error(limit(SymmetricHistogramObserver, data)) <= 1.02 * least
    assert least < 0.9 * error(float(data.abs().max()))


@pytest.mark.parametrize("observer", HISTOGRAMS)
def test_zeros_alone_have_a_scale(observer):
    assert 0 < limit(observer, torch.zeros(10)) < 2
