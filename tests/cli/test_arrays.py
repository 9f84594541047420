"""How far two arrays are apart."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from trt_et.cli.arrays import compare_arrays, to_numpy

ONES = np.ones(4, np.float32)


def changed(value: float) -> np.ndarray:
    array = ONES.copy()
    array[2] = value
    return array


def test_equal_arrays_agree():
    facts = compare_arrays(ONES, ONES)
    assert (facts["largest_error"], facts["cosine"]) == (0, 1)
    zeros = compare_arrays(0 * ONES, 0 * ONES)
    assert (zeros["largest_relative_error"], zeros["cosine"]) == (0, 1)


def test_the_largest_error_counts_beside_the_largest_value():
    facts = compare_arrays(changed(1.5), ONES * 1)
    assert facts["largest_error"] == 0.5
    assert facts["largest_relative_error"] == 0.5
    assert facts["cosine"] == pytest.approx(4.5 / math.sqrt(4 * (3 + 1.5**2)))


def test_the_signal_to_noise_ratio_is_in_decibels():
    facts = compare_arrays(changed(1.5), ONES)
    assert facts["mean_error"] == 0.125
    assert facts["snr_db"] == pytest.approx(10 * math.log10(4 / 0.25))
    assert compare_arrays(ONES, ONES)["snr_db"] == math.inf
    assert compare_arrays(changed(math.nan), ONES)["snr_db"] == -math.inf
    assert compare_arrays(ONES, 0 * ONES)["snr_db"] == -math.inf


def test_nans_and_infinities_are_equal_only_to_themselves():
    for value in (math.nan, math.inf, -math.inf):
        assert compare_arrays(changed(value), changed(value))["largest_error"] == 0
        assert compare_arrays(changed(value), ONES)["largest_error"] == math.inf
        assert compare_arrays(ONES, changed(value))["largest_error"] == math.inf
    facts = compare_arrays(changed(math.nan), ONES)
    assert (facts["nans"], facts["expected_nans"]) == (1, 0)


def test_other_shapes_have_no_error_that_could_be_small():
    facts = compare_arrays(ONES, ONES.reshape(2, 2))
    assert "largest_error" not in facts
    assert (facts["shape"], facts["expected_shape"]) == ([4], [2, 2])


def test_integers_and_empty_arrays_are_compared():
    assert compare_arrays(np.array([2**40]), np.array([2**40 + 1]))["largest_error"] == 1
    assert compare_arrays(np.empty((0, 3)), np.empty((0, 3)))["largest_error"] == 0


def test_types_that_numpy_lacks_become_floats():
    assert to_numpy(torch.ones(2, dtype=torch.bfloat16)).dtype == np.float32
