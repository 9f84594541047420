"""What TensorRT's builder logs in an export."""

from __future__ import annotations

import io
import logging

import pytest

from tests.support.lowering import export, lower
from trt_et.conversion import torch_tensorrt_import
from trt_et.conversion.torch_tensorrt_import import tensorrt_log
from trt_et.engines.rtx_network import RtxParserBuilder
from trt_et.engines.tensorrt_rtx import TensorRTRTXBuilder


@pytest.mark.parametrize(
    "make", [TensorRTRTXBuilder, RtxParserBuilder], ids=["Torch-TensorRT", "parser"]
)
@pytest.mark.parametrize("level", ["", "debug"])
def test_what_tensorrt_logs_is_shown_if_asked_for(make, level, monkeypatch):
    shown = io.StringIO()
    monkeypatch.setattr(torch_tensorrt_import._SHOWN, "stream", shown)
    monkeypatch.setenv("TRT_ET_LOG", level)
    monkeypatch.setattr(tensorrt_log(), "level", logging.NOTSET)
    lower(export("mlp"), builder=make())
    lines = shown.getvalue().splitlines()
    assert len(lines) > 50 if level else not lines
    assert not tensorrt_log().handlers
