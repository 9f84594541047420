"""Networks that make images, written by hand as people write them."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional

from tests.support.zoo.case import Case

__all__ = ["MODELS"]


def _double(before: int, after: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(before, after, 3, padding=1),
        nn.BatchNorm2d(after),
        nn.ReLU(inplace=True),
        nn.Conv2d(after, after, 3, padding=1),
        nn.BatchNorm2d(after),
        nn.ReLU(inplace=True),
    )


class UNet(nn.Module):
    """Skips that are padded to fit; the way up by ConvTranspose and by bilinear resampling."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.three = _double(3, 8), _double(8, 16), _double(16, 32)
        self.pool = nn.MaxPool2d(2)
        self.up = nn.ConvTranspose2d(32, 16, 2, 2)
        self.smooth = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True)
        self.four, self.five = _double(32, 16), _double(24, 8)
        self.head = nn.Conv2d(8, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a = self.one(x)
        b = self.two(self.pool(a))
        c = self.up(self.three(self.pool(b)))
        c = functional.pad(c, [0, b.shape[3] - c.shape[3], 0, b.shape[2] - c.shape[2]])
        d = self.smooth(self.four(torch.cat([b, c], 1)))
        d = functional.pad(d, [0, a.shape[3] - d.shape[3], 0, a.shape[2] - d.shape[2]])
        return self.head(self.five(torch.cat([a, d], 1)))


def unet() -> Case:
    return Case(UNet(), (torch.randn(1, 3, 38, 38),))


class DiffusionBlock(nn.Module):
    """A residual block with GroupNorm and a time embedding, then cross attention over a text."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.norm1 = nn.GroupNorm(4, width)
        self.conv1 = nn.Conv2d(width, width, 3, padding=1)
        self.time = nn.Linear(32, width)
        self.norm2 = nn.GroupNorm(4, width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1)
        self.norm3 = nn.LayerNorm(width)
        self.q = nn.Linear(width, width, bias=False)
        self.kv = nn.Linear(24, 2 * width, bias=False)
        self.out = nn.Linear(width, width)
        self.geglu = nn.Linear(width, 8 * width)
        self.back = nn.Linear(4 * width, width)
        self.down = nn.Conv2d(width, width, 3, 2)
        self.up = nn.Conv2d(width, 4, 3, padding=1)

    def forward(self, x: torch.Tensor, t: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
        frequency = torch.exp(-torch.arange(16, dtype=torch.float32) * 0.5)
        angle = t[:, None].float() * frequency[None]
        time = self.time(functional.silu(torch.cat([angle.cos(), angle.sin()], -1)))
        y = self.conv1(functional.silu(self.norm1(x))) + time[:, :, None, None]
        x = x + self.conv2(functional.silu(self.norm2(y)))
        b, c, h, w = x.shape
        tokens = x.permute(0, 2, 3, 1).reshape(b, h * w, c)
        q = self.q(self.norm3(tokens)).view(b, -1, 2, c // 2).transpose(1, 2)
        k, v = (part.view(b, -1, 2, c // 2).transpose(1, 2) for part in self.kv(text).chunk(2, -1))
        seen = functional.scaled_dot_product_attention(q, k, v)
        tokens = tokens + self.out(seen.transpose(1, 2).reshape(b, h * w, c))
        value, gate = self.geglu(tokens).chunk(2, -1)
        tokens = tokens + self.back(value * functional.gelu(gate))
        x = tokens.reshape(b, h, w, c).permute(0, 3, 1, 2)
        low = self.down(functional.pad(x, (0, 1, 0, 1)))
        return self.up(functional.interpolate(low, scale_factor=2.0, mode="nearest"))


def diffusion() -> Case:
    inputs = (torch.randn(2, 16, 8, 8), torch.tensor([3, 700]), torch.randn(2, 7, 24))
    return Case(DiffusionBlock(), inputs)


def gan() -> Case:
    model = nn.Sequential(
        nn.ConvTranspose2d(12, 16, 4, 1, 0, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(True),
        nn.ConvTranspose2d(16, 8, 4, 2, 1, bias=False),
        nn.InstanceNorm2d(8, affine=True),
        nn.LeakyReLU(0.2, inplace=True),
        nn.ConvTranspose2d(8, 3, 3, 2, 1, output_padding=1, groups=1),
        nn.Tanh(),
    )
    return Case(model, (torch.randn(2, 12, 1, 1),))


class SuperResolution(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 8, 5, padding=2),
            nn.PReLU(),
            nn.Conv2d(8, 4, 3, padding=1, padding_mode="reflect"),
            nn.PixelShuffle(2),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        big = functional.interpolate(x, scale_factor=2, mode="bicubic", align_corners=False)
        return (self.body(x) + big).clamp(0, 1)


def super_resolution() -> Case:
    return Case(SuperResolution(), (torch.rand(1, 1, 12, 10),))


class Vae(nn.Module):
    """Encoder, mean and deviation, decoder; the noise is an input."""

    def __init__(self) -> None:
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(16, 16), nn.ELU(), nn.Linear(16, 8))
        self.decode = nn.Sequential(
            nn.Linear(4, 16), nn.Softplus(), nn.Linear(16, 16), nn.Sigmoid()
        )

    def forward(self, x: torch.Tensor, noise: torch.Tensor) -> tuple[torch.Tensor, ...]:
        mean, log = self.encode(x).split(4, 1)
        return self.decode(mean + noise * torch.exp(0.5 * log)), mean, log


def vae() -> Case:
    return Case(Vae(), (torch.randn(3, 16), torch.randn(3, 4)))


MODELS: dict[str, Callable[[], Case]] = {
    "unet": unet,
    "diffusion": diffusion,
    "gan": gan,
    "super_resolution": super_resolution,
    "vae": vae,
}
