"""Batch norms of engines that compute in the model's own dtype."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tests.support.programs.kv_cache_models import recorded
from trt_et.engine_program.program import unlift

BATCH_NORM = torch.ops.aten._native_batch_norm_legit_no_training.default


def normalized(variance: float) -> nn.Module:
    """A convolution whose results have a variance, and the batch norm that divides by it."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)).eval()
    model[1].running_var.fill_(variance)
    model[0].weight.data.mul_(variance**0.5)
    return model


def error_and_norms(model: nn.Module, dtype: torch.dtype) -> tuple[float, int]:
    """The largest error of a partition's program against float32, and its batch norms."""
    x = torch.randn(2, 3, 8, 8).to(dtype)
    want = model.to(dtype).float()(x.float())
    (found,) = recorded(model.to(dtype), (x,))[0]
    norms = found.program.exported.graph.find_nodes(op="call_function", target=BATCH_NORM)
    with torch.no_grad():
        (have,) = unlift(found.program.exported)(x)
    return float((have.float() - want).abs().max()), len(norms)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_it_is_folded_into_its_convolution(dtype):
    error, norms = error_and_norms(normalized(2.0), dtype)
    assert norms == 0
    assert error < 8 * torch.finfo(dtype).eps


def test_it_is_folded_before_an_activation_in_place():
    """As in torchvision's ResNets: the convolution's weight is not what the call writes to."""
    model = nn.Sequential(*normalized(2.0), nn.ReLU(inplace=True)).eval()
    error, norms = error_and_norms(model, torch.float32)
    assert norms == 0
    assert error < 8 * torch.finfo(torch.float32).eps


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_channels_that_training_has_switched_off_do_not_keep_it(dtype):
    model = normalized(2.0)
    model[0].weight.data[1] *= 1e-38
    model[1].running_var[1] = 1e-40
    model[1].weight.data[1:3] = 1e-4
    error, norms = error_and_norms(model, dtype)
    assert norms == 0
    assert error < 8 * torch.finfo(dtype).eps


@pytest.mark.parametrize(
    ("gamma", "variance", "factor"), [(1e-4, 6e4, 1e-2), (6e4, 1e-5, 10.0)], ids=["small", "large"]
)
def test_it_stays_if_the_weights_dtype_cannot_hold_the_product(gamma, variance, factor):
    model = normalized(2.0)
    model[0].weight.data.mul_(factor)
    model[1].weight.data.fill_(gamma)
    model[1].running_var.fill_(variance)
    _, norms = error_and_norms(model, torch.float16)
    assert norms == 1
