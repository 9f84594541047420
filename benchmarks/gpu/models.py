"""The models of ``benchmarks/engines`` in float16, with weights that compress well.

A machine with a GPU may be reached by a slow way only, and times do not depend on the weights.
"""

from __future__ import annotations

import math

import torch
from torch import nn

from benchmarks.engines.models import Model, make_model

_PERIOD = 8192
_STEP = 677  # Each tensor starts at a place of its own in the pattern.


def half_model(name: str) -> Model:
    """The model of that name, in eval mode, the same on every machine.

    Weights repeat one pattern of normal values. What scales channels of another weight, and may be
    folded into it, is a constant: so the product repeats too.
    """
    model = make_model(name)
    pattern = torch.randn(_PERIOD, generator=torch.Generator().manual_seed(0))
    for index, (parameter_name, parameter) in enumerate(model.module.named_parameters()):
        values = pattern.roll(index * _STEP)
        values = values.repeat(-(-parameter.numel() // _PERIOD))[: parameter.numel()]
        parameter.copy_(_scaled(parameter_name, parameter, values.view_as(parameter)))
    for module in model.module.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.weight.fill_(0.9)
            module.get_buffer("running_mean").fill_(0.05)
            module.get_buffer("running_var").fill_(1.1)
    return model.half()


def _scaled(name: str, parameter: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    if parameter.dim() > 1:
        fan_in: int = parameter[0].numel()
        return values / math.sqrt(fan_in)
    if name.endswith("gamma"):
        return torch.full_like(values, 0.5)
    return 0.02 * values + (1.0 if name.endswith("weight") else 0.0)
