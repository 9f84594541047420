"""Whole models, as people bring them, built by TensorRT-RTX (see ``test_runs.py``)."""

from __future__ import annotations

import pytest

from tests.support.programs.quantized_networks import needs_rtx
from tests.support.zoo.lowered import TO_BUILD, check_built, make


@needs_rtx
@pytest.mark.parametrize("name", TO_BUILD)
def test_tensorrt_rtx_builds_it(name):
    check_built(make(name))
