"""The models of ``benchmarks/engines`` in float16, with weights that compress well.

A machine with a GPU may be reached by a slow way only, and times do not depend on the weights.
Weights and inputs are the same on every machine; their hashes stand in the file of results.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from benchmarks.engines.models import Model, make_model

BATCHES = (1, 32)
SEED = 1
_PERIOD = 8192
_STEP = 677  # Each tensor starts at a place of its own in the pattern.
_FIRST_TOKEN = 3  # Smaller ones may be special.


def case_name(name: str, batch: int) -> str:
    """Such as ``resnet18.32``; a model of dynamic sizes has one case, of its example's sizes."""
    return f"{name}.{batch}"


def has_batch(name: str, batch: int) -> bool:
    """Whether a model is measured with that batch."""
    return batch == BATCHES[0] or "dynamic" not in name


def half_model(name: str, batch: int = 1) -> Model:
    """The model of that name, in eval mode, with random inputs: the same on every machine.

    Weights repeat one pattern of normal values. What scales channels of another weight, and may be
    folded into it, is a constant: so the product repeats too.

    Args:
        name: A model of ``benchmarks.engines``.
        batch: How often the example's batch is repeated.
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
    random = torch.Generator().manual_seed(SEED)
    inputs = tuple(_random_like(x, batch, random) for x in model.inputs)
    return Model(model.module, inputs, model.dynamic_shapes).half()


def _random_like(example: torch.Tensor, batch: int, random: torch.Generator) -> torch.Tensor:
    shape = (batch * example.shape[0], *example.shape[1:])
    if example.is_floating_point():
        return torch.randn(shape, generator=random)
    largest = int(example.max())
    if largest <= 1:  # A mask stays one.
        return example.repeat(batch, *[1] * (example.dim() - 1))
    return torch.randint(_FIRST_TOKEN, largest + 1, shape, generator=random)


def tensor_bytes(tensor: torch.Tensor) -> bytes:
    found: bytes = tensor.contiguous().numpy().tobytes()
    return found


def hash_of(tensors: Iterable[torch.Tensor]) -> str:
    """SHA-256 of the tensors' bytes, one behind the other."""
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(tensor_bytes(tensor.detach()))
    return digest.hexdigest()


def described(inputs: Iterable[torch.Tensor]) -> list[dict[str, Any]]:
    """Shape, dtype and SHA-256 of each tensor."""
    return [
        {
            "shape": list(x.shape),
            "dtype": str(x.dtype).removeprefix("torch."),
            "sha256": hash_of([x]),
        }
        for x in inputs
    ]


def _scaled(name: str, parameter: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    if parameter.dim() > 1:
        fan_in: int = parameter[0].numel()
        return values / math.sqrt(fan_in)
    if name.endswith("gamma"):
        return torch.full_like(values, 0.5)
    return 0.02 * values + (1.0 if name.endswith("weight") else 0.0)
