"""Fourier transforms of constant lengths are products, within 4e-6 of the largest value."""

from __future__ import annotations

import logging

import pytest
import torch
from torch import Tensor, fft
from torch.export import Dim, export

from tests.support.models import Function
from tests.support.programs.operator_networks import lower_and_compare
from tests.support.sampled import sampled
from trt_et import TensorRTPartitioner
from trt_et.mends.complex_numbers import is_complex, use_real_numbers

hann = torch.hann_window


def pairs(z: Tensor) -> Tensor:
    return torch.view_as_real(z.resolve_conj())


def numbers(x: Tensor) -> Tensor:
    return torch.complex(x, x.flip(-1) * 0.5)


# Of a real tensor (2, 6, 12).
TRANSFORMS = {
    "fft": lambda x: pairs(fft.fft(numbers(x))),
    "fft, shorter": lambda x: pairs(fft.fft(x, n=7, dim=1)),
    "ifft, longer": lambda x: pairs(fft.ifft(numbers(x), n=20)),
    "rfft": lambda x: fft.rfft(x).abs(),
    "irfft": lambda x: fft.irfft(numbers(x)),
    "irfft, odd": lambda x: fft.irfft(numbers(x), n=21),
    "hfft": lambda x: fft.hfft(numbers(x)),
    "ihfft": lambda x: pairs(fft.ihfft(x)),
    "fft2, ortho": lambda x: pairs(fft.fft2(numbers(x), norm="ortho")),
    "fftn, forward": lambda x: pairs(fft.fftn(numbers(x), norm="forward")),
    "rfft2 and irfft2": lambda x: fft.irfft2(
        fft.rfft2(x, dim=(0, 1), norm="ortho") * (1 + 2j), s=(2, 6), dim=(0, 1), norm="ortho"
    ),
    "irfftn": lambda x: fft.irfftn(numbers(x), s=(5, 9), dim=(1, 2)),
    "of three dimensions": lambda x: fft.rfftn(x).real,
}
LENGTHS = (400, 1024, 2048, 3000, 4096)


def error(result: Tensor, exact: Tensor) -> float:
    return float((result.double() - exact).abs().max() / exact.abs().max())


def check(function, *inputs: Tensor, dynamic_shapes=None) -> None:
    model = Function(function)
    shapes = None if dynamic_shapes is None else (dynamic_shapes,)
    real = use_real_numbers(export(model, inputs, dynamic_shapes=shapes))
    assert not any(map(is_complex, real.graph.nodes))
    exact = model(*(x.double() for x in inputs))
    assert error(real.module()(*inputs), exact) < 4e-6


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms_are_exact(name):
    check(TRANSFORMS[name], torch.randn(2, 6, 12))


@pytest.mark.parametrize("length", LENGTHS)
def test_long_transforms_are_exact(length):
    check(lambda x: pairs(fft.rfft(x)), torch.randn(2, length))
    check(lambda x: pairs(fft.fft(torch.complex(x, x.flip(0)))), torch.randn(2, length))
    check(
        lambda x: fft.irfft(torch.complex(x, x.flip(0)), n=length), torch.randn(2, length // 2 + 1)
    )


@pytest.mark.parametrize("name", sampled(TRANSFORMS, 3))
def test_a_transform_is_one_engine(name):
    _, partitioner = lower_and_compare(export(Function(TRANSFORMS[name]), (torch.randn(2, 6, 12),)))
    assert len(partitioner.report.partitions) == 1
    assert not partitioner.report.not_delegated


SHORT_TIME = {
    "whisper": {"n_fft": 400, "hop_length": 160, "window": 400},
    "a short window": {"n_fft": 512, "hop_length": 128, "win_length": 300, "window": 300},
    "no padding": {"n_fft": 256, "center": False, "window": 256},
    "normalized": {"n_fft": 256, "normalized": True, "window": 256},
    "zeros as padding": {"n_fft": 256, "pad_mode": "constant", "window": 256},
    "two sides": {"n_fft": 64, "onesided": False},
    "of a vocoder": {"n_fft": 2048, "hop_length": 512, "window": 2048},
    "odd": {"n_fft": 401, "hop_length": 100, "window": 401},
}


def short_time(x: Tensor, window: int | None = None, **options) -> Tensor:
    given = None if window is None else hann(window, dtype=x.dtype)
    return torch.stft(x, window=given, return_complex=True, **options)


@pytest.mark.parametrize("name", SHORT_TIME)
def test_spectrograms_are_exact(name):
    check(lambda x: short_time(x, **SHORT_TIME[name]).abs(), torch.randn(2, 4000))


def test_spectrograms_of_one_signal_and_of_a_dynamic_batch_are_exact():
    options = SHORT_TIME["whisper"]
    check(lambda x: pairs(short_time(x, **options)), torch.randn(4000))
    sizes = {0: Dim("b", min=1, max=8), 1: Dim("n", min=2000, max=64000)}
    check(lambda x: short_time(x, **options).abs(), torch.randn(2, 4000), dynamic_shapes=(sizes,))


INVERSE = {
    "plain": {"window": 512},
    "not centered": {"center": False},
    "a length": {"length": 2400, "window": 512},
    "zeros at the end": {"length": 2700},
    "normalized": {"normalized": True, "window": 512},
    "a short window": {"win_length": 400, "window": 400},
}


def inverse(a: Tensor, b: Tensor, window: int | None = None, **options) -> Tensor:
    given = None if window is None else hann(window, dtype=a.dtype)
    return torch.istft(torch.complex(a, b), 512, 128, window=given, **options)


@pytest.mark.parametrize("name", INVERSE)
def test_inverse_spectrograms_are_exact(name):
    frames = torch.randn(2, 257, 20), torch.randn(2, 257, 20)
    check(lambda a, b: inverse(a, b, **INVERSE[name]), *frames)


def test_a_log_mel_front_end_is_one_engine():
    """As Whisper's feature extractor writes it."""
    filters = torch.rand(80, 201)

    def log_mel(x: Tensor) -> Tensor:
        magnitudes = short_time(x, **SHORT_TIME["whisper"])[..., :-1].abs() ** 2
        log = (filters @ magnitudes).clamp(min=1e-10).log10()
        return (torch.maximum(log, log.max() - 8.0) + 4.0) / 4.0

    _, partitioner = lower_and_compare(export(Function(log_mel), (torch.randn(1, 8000) * 0.1,)))
    assert len(partitioner.report.partitions) == 1
    assert not partitioner.report.not_delegated


def test_a_transform_of_a_dynamic_length_is_named_with_its_reason(caplog):
    program = export(
        Function(lambda x: fft.rfft(x).abs()),
        (torch.randn(2, 64),),
        dynamic_shapes=(({1: Dim("n", min=8, max=100)},),),
    )
    with caplog.at_level(logging.WARNING):
        use_real_numbers(program)
    assert "dimension 1 is dynamic" in caplog.text


def test_a_transform_keeps_float32_when_engines_compute_in_float16():
    partitioner = TensorRTPartitioner(builder="reference", precision="float16", calibration=[])

    def spectrum(x: Tensor) -> Tensor:
        return torch.rand(8, 129) @ short_time(x, n_fft=256, window=256).abs()

    partitioner.explain(export(Function(spectrum), (torch.randn(1, 2000),)))
    (partition,) = partitioner.report.partitions
    kept = {operator: reason for _, operator, reason in partition.float32}
    assert any("conv" in operator and "quiet" in reason for operator, reason in kept.items())
