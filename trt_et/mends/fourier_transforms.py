"""Fourier transforms of constant lengths as products with cosines and sines.

A transform of many short frames is a convolution. The tables are computed in float64 and rounded
once, so results are within about 2e-6 of the largest value in float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import torch
from torch import Tensor
from torch._subclasses.complex_tensor import ComplexTensor
from torch.nn import functional as F

aten = torch.ops.aten

# Longer transforms are split in two: their table would have over a million numbers.
_LONGEST_TABLE: Final = 1024
# By torch's numbers of normalizations: the power of the length that results are multiplied by.
_EXPONENTS: Final = {0: 0.0, 1: -0.5, 2: -1.0}

Parts = tuple[Tensor, Tensor | None]  # None: the imaginary part is 0.


class NoRealForm(Exception):
    """A call has no form in real numbers; the text says why."""


def _length(tensor: Tensor, dim: int) -> int:
    size = tensor.shape[dim]
    if not isinstance(size, int):
        raise NoRealForm(
            f"dimension {dim % tensor.dim()} is dynamic; Fourier transforms need a constant length"
        )
    return size


def _angles(rows: Tensor, columns: Tensor, length: int) -> Tensor:
    """Return the angle of each turn of ``length`` steps, in float64."""
    return (torch.outer(rows, columns) % length).double() * (2 * math.pi / length)


def _turn(parts: Parts, cosines: Tensor, sines: Tensor) -> Parts:
    """Multiply complex numbers by others."""
    real, imaginary = parts
    if imaginary is None:
        return real * cosines, real * sines
    return real * cosines - imaginary * sines, real * sines + imaginary * cosines


def _transform(parts: Parts, count: int, sign: int) -> Parts:
    """Transform along the last dimension; return its first ``count`` results."""
    real, imaginary = parts
    length, dtype = real.shape[-1], real.dtype
    first = _factor(length)
    if length <= _LONGEST_TABLE:
        angles = _angles(torch.arange(length), torch.arange(count), length)
        cosines, sines = angles.cos().to(dtype), (angles.sin() * sign).to(dtype)
        if imaginary is None:
            return real @ cosines, real @ sines
        return real @ cosines - imaginary @ sines, real @ sines + imaginary @ cosines
    if first == 1:
        raise NoRealForm(f"a transform of the prime length {length}; pad it")
    # With n = second * a + b and k = c + first * d, each sum over a is a short transform.
    second = length // first
    split = [None if x is None else x.reshape(*x.shape[:-1], first, second).mT for x in parts]
    inner = _transform((split[0], split[1]), first, sign)  # type: ignore[arg-type]
    angles = _angles(torch.arange(second), torch.arange(first), length)
    turned = _turn(inner, angles.cos().to(dtype), (angles.sin() * sign).to(dtype))
    outer = _transform((turned[0].mT, turned[1].mT), second, sign)  # type: ignore[union-attr]
    both = [x.mT.flatten(-2).narrow(-1, 0, count) for x in outer]  # type: ignore[union-attr]
    return both[0], both[1]


def _factor(length: int) -> int:
    """Return the largest divisor up to the square root."""
    return next(n for n in range(math.isqrt(length), 0, -1) if length % n == 0)


def _along(parts: Parts, dim: int, count: int, sign: int) -> Parts:
    moved = [None if x is None else x.movedim(dim, -1) for x in parts]
    results = _transform((moved[0], moved[1]), count, sign)  # type: ignore[arg-type]
    real, imaginary = (x.movedim(-1, dim) for x in results)  # type: ignore[union-attr]
    return real, imaginary


def _complex_to_complex(
    self: ComplexTensor, dim: Sequence[int], normalization: int, forward: bool
) -> ComplexTensor:
    real, imaginary = parts = (self.re, self.im)
    scale = math.prod(_length(real, each) for each in dim) ** _EXPONENTS[normalization]
    for each in dim:
        parts = _along(parts, each, _length(real, each), -1 if forward else 1)  # type: ignore[assignment]
    real, imaginary = parts
    return ComplexTensor(real * scale, imaginary * scale)


def _real_to_complex(
    self: Tensor, dim: Sequence[int], normalization: int, onesided: bool
) -> ComplexTensor:
    *others, last = dim
    length = _length(self, last)
    scale = math.prod(_length(self, each) for each in dim) ** _EXPONENTS[normalization]
    real, imaginary = _along((self, None), last, length // 2 + 1 if onesided else length, -1)
    transformed = ComplexTensor(real * scale, imaginary * scale)
    return _complex_to_complex(transformed, others, 0, True) if others else transformed


def _complex_to_real(
    self: ComplexTensor, dim: Sequence[int], normalization: int, last_dim_size: int
) -> Tensor:
    """Sum the cosines of the frequencies; all but the first, and the middle one, count twice."""
    *others, last = dim
    if not isinstance(last_dim_size, int):
        raise NoRealForm("the result's length is dynamic; Fourier transforms need a constant")
    lengths = [_length(self.re, each) for each in others]
    scale = math.prod([*lengths, last_dim_size]) ** _EXPONENTS[normalization]
    if others:
        self = _complex_to_complex(self, others, 0, False)
    count, dtype = last_dim_size // 2 + 1, self.re.dtype
    real, imaginary = (x.movedim(last, -1)[..., :count] for x in (self.re, self.im))
    if last_dim_size <= _LONGEST_TABLE:
        cosines, sines = _inverse_tables(last_dim_size, scale)
        result = real @ cosines.to(dtype) - imaginary @ sines.to(dtype)
    else:
        # The other frequencies are the conjugates; parts that torch ignores are 0.
        kept = torch.arange(count)
        imaginary = imaginary * ((kept > 0) & (2 * kept != last_dim_size)).to(dtype)
        mirrored = [x[..., 1 : (last_dim_size + 1) // 2].flip(-1) for x in (real, imaginary)]
        spectrum = torch.cat([real, mirrored[0]], -1), torch.cat([imaginary, -mirrored[1]], -1)
        result = _transform(spectrum, last_dim_size, 1)[0] * scale
    return result.movedim(-1, last)


def _inverse_tables(length: int, scale: float) -> tuple[Tensor, Tensor]:
    """Return what each real and imaginary part of a one-sided spectrum adds to each result."""
    frequencies = torch.arange(length // 2 + 1)
    counts = torch.where((frequencies == 0) | (2 * frequencies == length), 1.0, 2.0).double()
    angles = _angles(frequencies, torch.arange(length), length)
    weights = (counts * scale)[:, None]
    return angles.cos() * weights, angles.sin() * weights


def _padded_window(window: Tensor | None, win_length: int | None, n_fft: int) -> Tensor:
    length = n_fft if win_length is None else win_length
    whole = torch.ones(length, dtype=torch.float64) if window is None else window.double()
    left = (n_fft - length) // 2
    return F.pad(whole, (left, n_fft - length - left))


def _short_time(
    self: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    normalized: bool = False,
    onesided: bool | None = None,
    return_complex: bool | None = None,
    align_to_window: bool | None = None,
) -> Any:  # noqa: ANN401
    """``aten.stft.default`` of real samples: a convolution along frames."""
    if isinstance(self, ComplexTensor) or isinstance(window, ComplexTensor) or align_to_window:
        raise NoRealForm("samples or a window of complex numbers, or align_to_window")
    hop = n_fft // 4 if hop_length is None else hop_length
    count = n_fft if onesided is False else n_fft // 2 + 1
    angles = _angles(torch.arange(count), torch.arange(n_fft), n_fft)
    scaled = _padded_window(window, win_length, n_fft) * (1 / math.sqrt(n_fft) if normalized else 1)
    weight = torch.cat([angles.cos() * scaled, angles.sin() * -scaled]).to(self.dtype)
    samples = self.reshape(-1, 1, self.shape[-1])
    frames = F.conv1d(samples, weight[:, None], stride=hop)
    real, imaginary = frames[:, :count], frames[:, count:]
    if self.dim() == 1:
        real, imaginary = real[0], imaginary[0]
    return ComplexTensor(real, imaginary) if return_complex else torch.stack([real, imaginary], -1)


def _short_time_center(
    self: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,
    pad_mode: str = "reflect",
    *given: Any,  # noqa: ANN401
    **named: Any,  # noqa: ANN401
) -> Any:  # noqa: ANN401
    if center:
        samples = F.pad(self.reshape(1, -1, self.shape[-1]), [n_fft // 2] * 2, mode=pad_mode)
        self = samples[0, 0] if self.dim() == 1 else samples[0]
    return _short_time(self, n_fft, hop_length, win_length, window, *given, **named)


def _inverse_short_time(
    self: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool | None = None,
    length: int | None = None,
    return_complex: bool = False,
) -> Tensor:
    """``aten.istft.default`` to real samples: frames are added, and divided by their windows."""
    frames = self if isinstance(self, ComplexTensor) else ComplexTensor(self[..., 0], self[..., 1])
    if return_complex or isinstance(window, ComplexTensor):
        raise NoRealForm("results or a window of complex numbers")
    hop = n_fft // 4 if hop_length is None else hop_length
    real, imaginary = frames.re, frames.im
    is_batch = real.dim() == 3
    if not is_batch:
        real, imaginary = real[None], imaginary[None]
    half = n_fft // 2 + 1
    real, imaginary = real[:, :half], imaginary[:, :half]
    cosines, sines = _inverse_tables(n_fft, 1 / math.sqrt(n_fft) if normalized else 1 / n_fft)
    padded = _padded_window(window, win_length, n_fft)
    weight = torch.cat([cosines * padded, sines * -padded]).to(real.dtype)
    summed = F.conv_transpose1d(torch.cat([real, imaginary], 1), weight[:, None], stride=hop)[:, 0]
    ones = torch.ones_like(real[:1, :1])
    windows = F.conv_transpose1d(ones, padded.square().to(real.dtype)[None, None], stride=hop)[:, 0]
    start = n_fft // 2 if center else 0
    whole = summed.shape[-1]
    end = start + length if length is not None else (whole - start if center else whole)
    missing = max(end - whole, 0) if isinstance(whole, int) and isinstance(end, int) else 0
    result = summed[:, start:end] / windows[:, start:end]
    result = F.pad(result, (0, missing)) if missing else result
    return result if is_batch else result[0]


FOURIER: Final[Mapping[Any, Callable[..., Any]]] = {
    aten._fft_c2c: _complex_to_complex,
    aten._fft_r2c: _real_to_complex,
    aten._fft_c2r: _complex_to_real,
}
"""The transforms that torch writes all others with."""

WHOLE: Final[Mapping[Any, Callable[..., Any]]] = {
    aten.stft.default: _short_time,
    aten.stft.center: _short_time_center,
    aten.istft.default: _inverse_short_time,
}
"""Operators that stay whole in exported programs."""
