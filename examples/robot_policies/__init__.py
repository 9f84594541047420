"""Policies of lerobot with small configurations and random weights, as modules to export."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

CAMERAS = ("top", "wrist")
JOINTS = 6


class Method(nn.Module):
    """A function of a module as a method of a program; methods share the module's buffers."""

    def __init__(self, owner: nn.Module, function: Callable[..., torch.Tensor | None]) -> None:
        super().__init__()
        self.owner = owner
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor | None:
        return self.function(*inputs)


@dataclass(frozen=True)
class Policy:
    """A policy to export.

    Attributes:
        observe: Takes an observation. It returns the actions if there are no steps.
        observations: The inputs of ``observe`` for the observations before a chunk of actions.
        expected: The actions that lerobot's own code computes from them.
        denoise: Takes a step [1] and returns the actions as they are after it.
        steps: How often ``denoise`` is called for a chunk.
    """

    observe: Method
    observations: list[tuple[torch.Tensor, ...]]
    expected: torch.Tensor
    denoise: Method | None = None
    steps: int = 0


def camera_image(height: int = 96, width: int = 96) -> torch.Tensor:
    """Return noise as a camera gives it: uint8 [1, height, width, 3]."""
    return torch.randint(256, (1, height, width, 3), dtype=torch.uint8)


def as_lerobot(image: torch.Tensor) -> torch.Tensor:
    """Return an image as lerobot takes it: float32 [1, 3, height, width] from 0 to 1."""
    return image.permute(0, 3, 1, 2) / 255
