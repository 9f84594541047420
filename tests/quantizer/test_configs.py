"""Configurations that TensorRT has layers for, and those that are refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
    get_symmetric_quantization_config,
)
from torch import nn
from torchao.quantization.pt2e.quantize_pt2e import prepare_pt2e
from torchao.quantization.pt2e.quantizer import FixedQParamsQuantizationSpec

from trt_et import OptionError
from trt_et.quantizer import TensorRTQuantizer, int8, int8_weight_only

ACTIVATION = int8().input_activation
BAD = {
    "a function": (int8, "(call it); expected int8()"),
    "a name": ("int8", "expected int8()"),
    "XNNPACK's": (get_symmetric_quantization_config(), "has zero points"),
    "at run time": (get_symmetric_quantization_config(is_dynamic=True), "is_dynamic"),
    "uint8": (
        replace(int8(), input_activation=replace(ACTIVATION, dtype=torch.uint8)),
        "torch.uint8",
    ),
    "bias": (replace(int8(), bias=ACTIVATION), "quantizes biases"),
    "fixed": (
        replace(int8(), weight=FixedQParamsQuantizationSpec(torch.int8, 1.0, 0)),
        "weight of the configuration is FixedQParams",
    ),
}


@pytest.mark.parametrize("case", BAD)
@pytest.mark.parametrize(
    ("method", "names"),
    [
        ("set_global", ()),
        ("set_module_name", ("fc",)),
        ("set_module_type", (nn.Linear,)),
        ("set_op", ("aten.linear",)),
    ],
)
def test_a_configuration_without_layers_is_refused(case, method, names):
    config, words = BAD[case]
    with pytest.raises(OptionError) as error:
        getattr(TensorRTQuantizer(), method)(*names, config)
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: int8(calibration="percentile"), "'percentile'; expected one of 'minmax'"),
        (lambda: int8(calibration=["minmax"]), "['minmax']; expected one of 'minmax'"),
        (lambda: int8(per_channel="yes"), "per_channel is 'yes'"),
        (lambda: int8(is_qat=1), "is_qat is 1"),
        (lambda: int8_weight_only(per_channel=0), "per_channel is 0"),
    ],
)
def test_a_wrong_argument_is_refused(make, words):
    with pytest.raises(OptionError) as error:
        make()
    assert words in str(error.value)


def test_a_quantizer_without_a_configuration_says_so(caplog):
    model = torch.export.export(nn.Linear(8, 8), (torch.ones(2, 8),)).module()
    prepare_pt2e(model, TensorRTQuantizer())
    assert "quantizes no operator of this program" in caplog.text
    caplog.clear()
    prepare_pt2e(model, TensorRTQuantizer().set_global(int8()))
    assert caplog.text == ""
