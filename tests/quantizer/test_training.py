"""Quantization-aware training with ``prepare_qat_pt2e``."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torchao.quantization.pt2e import move_exported_model_to_eval
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_qat_pt2e

from tests.support.lowering import lower
from tests.support.programs.pt2e import quantized_inputs, quantizer, scales
from trt_et.quantizer import int8, int8_weight_only


class Net(nn.Module):
    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 8, 3, padding=1), norm
        self.up = nn.ConvTranspose2d(8, 6, 2, stride=2)
        self.fc = nn.Linear(6, 4)

    def forward(self, x):
        x = torch.relu(self.norm(self.conv(x)))
        return self.fc(torch.relu(self.up(x)).mean((2, 3)))


@pytest.mark.parametrize(
    ("config", "norm"),
    [
        (int8(is_qat=True), nn.Identity()),
        # To prepare a batch norm takes torch 20 seconds.
        pytest.param(int8(is_qat=True), nn.BatchNorm2d(8), marks=pytest.mark.long),
        pytest.param(int8_weight_only(is_qat=True), nn.Identity(), marks=pytest.mark.long),
    ],
)
def test_ten_steps_train_and_the_result_exports(config, norm):
    torch.manual_seed(0)
    inputs, target = (torch.randn(4, 3, 8, 8),), torch.randn(4, 4)
    model = prepare_qat_pt2e(torch.export.export(Net(norm), inputs).module(), quantizer(config))
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    losses = []
    for _ in range(10):
        loss = nn.functional.mse_loss(model(*inputs), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    move_exported_model_to_eval(model)
    trained = model(*inputs).detach()
    program = torch.export.export(convert_pt2e(model), inputs)
    torch.testing.assert_close(program.module()(*inputs), trained, atol=0.05, rtol=0.05)
    found = quantized_inputs(program)
    is_int8 = config.input_activation is not None
    for call in ("conv2d", "conv_transpose2d", "linear"):
        assert found[call][:2] == [is_int8, True]
    assert ((6,), 1) in scales(program, "conv_transpose2d")
    assert "batch_norm" not in program.graph_module.code
    assert lower(program)
