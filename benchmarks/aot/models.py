"""The models that are exported: random weights, sizes in millions of parameters."""

from __future__ import annotations

import torch
from torch import nn

Example = tuple[nn.Module, tuple[torch.Tensor, ...]]

_WIDTH = 2048


def mlp(millions: float) -> Example:
    """Linear layers of 4.2 million parameters with ReLU between them."""
    depth = max(1, round(millions * 1e6 / (_WIDTH * (_WIDTH + 1))))
    layers = [nn.Sequential(nn.Linear(_WIDTH, _WIDTH), nn.ReLU()) for _ in range(depth)]
    return nn.Sequential(*layers).eval(), (torch.randn(4, _WIDTH),)


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
    return nn.Sequential(*(Block() for _ in range(max(1, round(millions / 7.1))))).eval(), (
        torch.randn(1, 197, Block.width),
    )


class Chain(nn.Module):
    """Small blocks with a sine between them, which the partitioners here leave to the CPU."""

    def __init__(self, count: int, width: int = 64) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(count))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.sin(torch.relu(layer(x)))
        return x


def chain(count: float) -> Example:
    """A program of so many partitions."""
    return Chain(int(count)).eval(), (torch.randn(4, 64),)


class Pair(nn.Module):
    """Two halves with a sine between them: two partitions of one size, and of different weights."""

    def __init__(self, first: nn.Module, second: nn.Module) -> None:
        super().__init__()
        self.first, self.second = first, second

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.sin(self.first(x)))


def pair(millions: float) -> Example:
    """A program of two engines, of blocks of a vision transformer."""
    (first, inputs), (second, _) = vit(millions / 2), vit(millions / 2)
    return Pair(first, second).eval(), inputs


class Twins(nn.Module):
    """The same block twice, with the same weights."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(_WIDTH, _WIDTH), nn.ReLU())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(torch.sin(self.layers(x)))


def twins(_: float = 0) -> Example:
    """A program of two partitions that are one engine."""
    return Twins().eval(), (torch.randn(4, _WIDTH),)


class Tiny(nn.Module):
    """A program whose engine is whatever its builder makes of it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x)


def tiny(_: float = 0) -> Example:
    """One operator."""
    return Tiny().eval(), (torch.randn(4, 8),)


MODELS = {
    "mlp": mlp,
    "vit": vit,
    "chain": chain,
    "pair": pair,
    "twins": twins,
    "tiny": tiny,
}
