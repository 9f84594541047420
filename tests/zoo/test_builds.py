"""Whole models, as people bring them, built by TensorRT-RTX (see ``test_runs.py``)."""

from __future__ import annotations

import pytest

from tests.support.zoo.lowered import TO_BUILD, check_built, make
from trt_et.conversion.installed import engine_library


@pytest.mark.skipif(engine_library() != "tensorrt_rtx", reason="TensorRT-RTX is not installed")
@pytest.mark.parametrize("name", TO_BUILD)
def test_tensorrt_rtx_builds_it(name):
    check_built(make(name))
