"""What a model of the zoo is: a module, how to export it, and calls to compare."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

__all__ = ["Case"]


@dataclass
class Case:
    """A model with random weights.

    Attributes:
        model: In eval mode.
        inputs: Positional, to export with.
        dynamic: As ``torch.export`` takes it.
        calls: Further inputs to run with, of other sizes or with state in between; the first call
            is always ``inputs``.
        partitions: How many engines it takes, at most.
        left: The operators that stay out of them, sizes apart.
        strict: Whether the model can only be exported so.
        atol: Absolute and relative tolerance of the comparison with eager.
    """

    model: nn.Module
    inputs: tuple[torch.Tensor, ...]
    dynamic: Any = None
    calls: tuple[tuple[torch.Tensor, ...], ...] = ()
    partitions: int = 1
    left: tuple[str, ...] = ()
    strict: bool = False
    atol: float = 1e-4
