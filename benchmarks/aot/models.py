"""The models that are exported: random weights, sizes in millions of parameters."""

from __future__ import annotations

import torch
from torch import nn

Example = tuple[nn.Module, tuple[torch.Tensor, ...]]

_WIDTH = 2048


def layers(count: int, width: int) -> nn.Module:
    """Linear layers with ReLU between them."""
    return nn.Sequential(*(nn.Sequential(nn.Linear(width, width), nn.ReLU()) for _ in range(count)))


def mlp(millions: float) -> Example:
    """Linear layers of 4.2 million parameters with ReLU between them."""
    depth = max(1, round(millions * 1e6 / (_WIDTH * (_WIDTH + 1))))
    return layers(depth, _WIDTH).eval(), (torch.randn(4, _WIDTH),)


class Block(nn.Module):
    """A transformer block of a ViT-Base: 7.1 million parameters."""

    width, heads = 768, 12

    def __init__(self) -> None:
        super().__init__()
        width = self.width
        self.before_attention, self.before_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, tokens, width = x.shape
        y = self.before_attention(x)
        heads = (
            project(y).reshape(batch, tokens, self.heads, -1).transpose(1, 2)
            for project in (self.query, self.key, self.value)
        )
        y = nn.functional.scaled_dot_product_attention(*heads)
        x = x + self.out(y.transpose(1, 2).reshape(batch, tokens, width))
        return x + self.down(nn.functional.gelu(self.up(self.before_mlp(x))))


def vit(millions: float) -> Example:
    """Blocks of a vision transformer."""
    blocks = (Block() for _ in range(max(1, round(millions / 7.1))))
    return nn.Sequential(*blocks).eval(), (torch.randn(1, 197, Block.width),)


class Sine(nn.Module):
    """The partitioners here leave it to the CPU."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sin(x)


def chain(count: float) -> Example:
    """A program of so many small partitions."""
    blocks = (nn.Sequential(nn.Linear(64, 64), nn.ReLU(), Sine()) for _ in range(int(count)))
    return nn.Sequential(*blocks).eval(), (torch.randn(4, 64),)


def pair(millions: float) -> Example:
    """A program of two engines of one size, of blocks of a vision transformer."""
    (first, inputs), (second, _) = vit(millions / 2), vit(millions / 2)
    return nn.Sequential(first, Sine(), second).eval(), inputs


class Twins(nn.Module):
    """The same block twice, with the same weights."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = layers(1, _WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(torch.sin(self.layers(x)))


def twins(_: float = 0) -> Example:
    """A program of two partitions that are one engine."""
    return Twins().eval(), (torch.randn(4, _WIDTH),)


def tiny(_: float = 0) -> Example:
    """One operator: a program whose engine is whatever its builder makes of it."""
    return nn.ReLU().eval(), (torch.randn(4, 8),)


MODELS = {model.__name__: model for model in (mlp, vit, chain, pair, twins)}
