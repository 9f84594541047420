"""Small models of each family, with random weights and fixed inputs."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional

Case = tuple[nn.Module, tuple[torch.Tensor, ...]]


class Function(nn.Module):
    def __init__(self, function: Callable[..., object]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> object:
        return self.function(*inputs)


class Unary(Function):
    """Has one input, so that dynamic sizes are not nested."""

    def forward(self, x: torch.Tensor) -> object:
        return self.function(x)


class Mlp(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(
            nn.Linear(16, 32),
            nn.GELU(),
            nn.LayerNorm(32),
            nn.Linear(32, 32),
            nn.Tanh(),
            nn.Linear(32, 4),
            nn.LogSoftmax(-1),
        )


class Cnn(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(
            nn.Conv2d(3, 8, 3, 2, 1),
            nn.BatchNorm2d(8),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3, 1, 1, groups=2),
            nn.BatchNorm2d(16),
            nn.SiLU(),
            nn.Conv2d(16, 16, 1),
            nn.Hardswish(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Dropout(),
            nn.Linear(16, 10),
            nn.Softmax(-1),
        )


class Vit(nn.Module):
    def __init__(self, width: int = 64, depth: int = 2) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 8, 8)
        self.cls = nn.Parameter(torch.randn(1, 1, width))
        self.position = nn.Parameter(torch.randn(1, 17, width))
        layer = nn.TransformerEncoderLayer(width, 4, 128, batch_first=True, activation="gelu")
        self.encoder = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.head = nn.Linear(width, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens = self.patches(x).flatten(2).transpose(1, 2)
        cls = self.cls.expand(tokens.shape[0], -1, -1)
        tokens = torch.cat([cls, tokens], 1) + self.position
        return self.head(self.encoder(tokens)[:, 0])


class ChannelsLast(nn.Module):
    """Takes and returns a channels_last tensor, and has channels_last weights."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self.to(memory_format=torch.channels_last)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = torch.relu(self.conv(x))
        return y, y.mean((2, 3))


class Split(nn.Module):
    """Two linear layers with a cumulative sum between them: two partitions if that is excluded."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return self.second(torch.cumsum(self.first(x), 1)) - y


class Outputs(nn.Module):
    """Returns an input, a constant, one value twice, and integers and booleans."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3))

    def forward(self, x: torch.Tensor, scale: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x * scale + self.weight
        return y, y.clone(), y > 0, y.argmax(), y.sum(), y.half().float()


class Order(nn.Module):
    """Uses its inputs in another order than it takes them; wrong slots give wrong results."""

    def forward(
        self, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        late = c * 2 - a
        return b / 4 - late, late + 1


class CachedAttention(nn.Module):
    """One step of a decoder, whose keys and values TensorRT can write in place.

    The same call gives the same result each time: it writes the same rows again.
    """

    def __init__(self, heads: int = 2, length: int = 16, width: int = 8) -> None:
        super().__init__()
        self.project = nn.Linear(heads * width, 3 * heads * width)
        self.register_buffer("keys", torch.zeros(1, heads, length, width))
        self.register_buffer("values", torch.zeros(1, heads, length, width))
        # ExecuTorch finishes no program that mutates buffers where gradients are on.
        self.requires_grad_(requires_grad=False)

    def forward(self, x: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        _, heads, length, width = self.keys.shape
        q, k, v = self.project(x).reshape(1, 1, 3, heads, width).permute(2, 0, 3, 1, 4)
        self.keys.index_copy_(2, position, k)
        self.values.index_copy_(2, position, v)
        seen = torch.arange(length) <= position
        return functional.scaled_dot_product_attention(q, self.keys, self.values, seen[None])


class State(nn.Module):
    """A running sum, and what a subclass makes of it."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(2, 3))

    def forward(self, x):
        self.total.add_(x)
        return self.total * 2


CASES: dict[str, Callable[[], Case]] = {
    "mlp": lambda: (Mlp(), (torch.randn(4, 16),)),
    "cnn": lambda: (Cnn(), (torch.randn(2, 3, 32, 32),)),
    "vit": lambda: (Vit(), (torch.randn(1, 3, 32, 32),)),
    "channels_last": lambda: (
        ChannelsLast(),
        (torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last),),
    ),
    "outputs": lambda: (Outputs(), (torch.randn(2, 3), torch.tensor(1.5))),
    "order": lambda: (Order(), (torch.randn(3), torch.randn(3), torch.randn(3))),
    "cached": lambda: (CachedAttention(), (torch.randn(1, 1, 16), torch.tensor([3]))),
    "split": lambda: (Split(), (torch.randn(2, 4), torch.randn(2, 4))),
}


def make(name: str) -> Case:
    """The model of that name in eval mode, and inputs; the same ones every time."""
    torch.manual_seed(0)
    model, inputs = CASES[name]()
    return model.eval(), inputs
