"""A model that was prepared for quantization and never converted is refused."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

from trt_et import PartitionError, TensorRTPartitioner
from trt_et.passes.left_observers import check_converted
from trt_et.quantizer import TensorRTQuantizer, int8


def test_a_prepared_model_is_refused_and_a_converted_one_is_not():
    inputs = (torch.randn(2, 8),)
    model = torch.export.export(nn.Linear(8, 8).eval(), inputs).module()
    prepared = prepare_pt2e(model, TensorRTQuantizer().set_global(int8()))
    prepared(*inputs)
    program = torch.export.export(prepared, inputs)
    with pytest.raises(
        PartitionError, match=r"2 observer.*activation_post_process_0; .*convert_pt2e"
    ):
        TensorRTPartitioner(builder="reference").explain(program)
    check_converted(torch.export.export(convert_pt2e(prepared), inputs))
