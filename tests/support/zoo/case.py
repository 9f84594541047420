"""What a model of the zoo is: a module, how to export it, and calls to compare."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn


@dataclass
class Case:
    model: nn.Module
    inputs: tuple[torch.Tensor, ...]  # To export with, and of the first call.
    dynamic: Any = None  # As torch.export takes it.
    # Of further calls, of other sizes or with state in between.
    calls: tuple[tuple[torch.Tensor, ...], ...] = ()
    partitions: int = 1  # How many engines it takes, at most.
    left: tuple[str, ...] = ()  # The operators that stay out of them, sizes apart.
    strict: bool = False  # Whether the model can only be exported so.
    atol: float = 1e-4  # Absolute and relative tolerance of the comparison with eager.
