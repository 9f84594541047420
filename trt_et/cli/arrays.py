"""Tensors as arrays, and the distance between two arrays."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch


def to_numpy(value: Any) -> np.ndarray[Any, Any]:  # noqa: ANN401
    """Convert a tensor or number to an array; types that NumPy lacks become float32."""
    tensor = value if isinstance(value, torch.Tensor) else torch.tensor(value)
    tensor = tensor.detach().cpu()
    try:
        return tensor.numpy()
    except TypeError:
        return tensor.float().numpy()


def compare_arrays(array: np.ndarray[Any, Any], expected: np.ndarray[Any, Any]) -> dict[str, Any]:
    """Compare two arrays; NaNs and infinities that both have are equal.

    Returns:
        ``shape``, ``expected_shape``, ``nans`` and ``expected_nans``; for equal shapes also
        ``largest_error``, ``largest_relative_error`` (to the largest expected value),
        ``mean_error``, ``cosine`` and ``snr_db``, the signal-to-noise ratio in decibels: the
        energy of the expected values over the errors' energy; infinite if there is no error.
    """
    facts: dict[str, Any] = {"shape": list(array.shape), "expected_shape": list(expected.shape)}
    one, other = array.astype(np.float64), expected.astype(np.float64)
    facts |= {"nans": int(np.isnan(one).sum()), "expected_nans": int(np.isnan(other).sum())}
    if one.shape != other.shape:
        return facts
    same = (one == other) | (np.isnan(one) & np.isnan(other))
    both = np.isfinite(one) & np.isfinite(other)
    error = np.where(same, 0.0, np.where(both, np.abs(np.where(both, one - other, 0.0)), math.inf))
    largest = float(error.max(initial=0.0))
    scale = float(np.abs(other[both]).max(initial=0.0))
    norms = float(np.linalg.norm(one[both]) * np.linalg.norm(other[both]))
    cosine = float(np.dot(one[both], other[both]) / norms) if norms else float(largest == 0)
    relative = largest / scale if scale else (0.0 if largest == 0 else math.inf)
    signal, noise = float(np.square(other[both]).sum()), float(np.square(error).sum())
    ratio = 10 * math.log10(signal / noise) if signal and 0 < noise < math.inf else -math.inf
    return facts | {
        "largest_error": largest,
        "largest_relative_error": relative,
        "mean_error": float(error.mean()) if error.size else 0.0,
        "cosine": min(1.0, cosine),
        "snr_db": ratio if noise else math.inf,
    }
