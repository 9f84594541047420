"""Networks that read or make images, written by hand as people write them."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional

from tests.support.zoo.case import Case


class InvertedResidual(nn.Module):
    """A block with squeeze and excitation."""

    def __init__(self, width: int, act: type[nn.Module], gate: type[nn.Module]) -> None:
        super().__init__()
        inner = width * 4
        self.before = nn.Sequential(
            *(nn.Conv2d(width, inner, 1, bias=False), nn.BatchNorm2d(inner), act()),
            nn.Conv2d(inner, inner, 3, 1, 1, groups=inner, bias=False),
            *(nn.BatchNorm2d(inner), act()),
        )
        self.excite = nn.Sequential(
            *(nn.AdaptiveAvgPool2d(1), nn.Conv2d(inner, 4, 1), nn.ReLU()),
            *(nn.Conv2d(4, inner, 1), gate()),
        )
        self.after = nn.Sequential(nn.Conv2d(inner, width, 1, bias=False), nn.BatchNorm2d(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.before(x)
        return x + self.after(y * self.excite(y))


def inverted(act: type[nn.Module], gate: type[nn.Module]) -> Case:
    model = nn.Sequential(
        *(nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), act()),
        *(InvertedResidual(8, act, gate) for _ in range(2)),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(1), nn.Dropout(0.2), nn.Linear(8, 10)),
    )
    return Case(model, (torch.randn(1, 3, 32, 32),))


class DeepLab(nn.Module):
    """Dilated convolutions, pooling pyramid, bilinear resampling to the input's size."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, 2, 1)
        self.branches = nn.ModuleList(nn.Conv2d(8, 8, 3, 1, d, dilation=d) for d in (1, 2, 4))
        self.pooled = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(8, 8, 1), nn.ReLU())
        self.head = nn.Conv2d(32, 5, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = functional.relu(self.stem(x))
        found = [branch(y) for branch in self.branches]
        y = self.head(torch.cat([*found, self.resampled(self.pooled(y), y)], 1))
        return self.resampled(y, x).argmax(1)

    @staticmethod
    def resampled(x: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
        size = like.shape[-2:]
        return functional.interpolate(x, size=size, mode="bilinear", align_corners=False)


class Fpn(nn.Module):
    """Three levels, nearest upsampling, an anchor head per level, boxes decoded, best scores."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.ModuleList(nn.Conv2d(a, b, 3, 2, 1) for a, b in ((3, 8), (8, 16), (16, 16)))
        self.side = nn.ModuleList(nn.Conv2d(a, 8, 1) for a in (8, 16, 16))
        self.head = nn.Conv2d(8, 6, 3, padding=1)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        levels = []
        for conv in self.down:
            x = functional.leaky_relu(conv(x), 0.1)
            levels.append(x)
        y, found = None, []
        for conv, level in zip(reversed(self.side), reversed(levels), strict=True):
            z = conv(level)
            y = z if y is None else z + functional.interpolate(y, scale_factor=2, mode="nearest")
            found.append(self.head(y).flatten(2).permute(0, 2, 1))
        boxes = torch.cat(found, 1)
        score = boxes[..., 4:].sigmoid()
        best, index = score.max(-1).values.topk(5)
        center, size = boxes[..., :2], boxes[..., 2:4].clamp(max=4).exp()
        corners = torch.cat([center - size / 2, center + size / 2], -1)
        return corners.gather(1, index.unsqueeze(-1).expand(-1, -1, 4)), best, index


def conv3d() -> Case:
    model = nn.Sequential(
        *(nn.Conv3d(2, 4, 3, padding=1), nn.BatchNorm3d(4), nn.ReLU(), nn.MaxPool3d(2)),
        *(nn.Conv3d(4, 4, 3, stride=2, padding=1), nn.AdaptiveAvgPool3d(1), nn.Flatten()),
        nn.Linear(4, 3),
    )
    return Case(model, (torch.randn(1, 2, 8, 8, 8),))


def _double(before: int, after: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for width in (before, after):
        layers += [nn.Conv2d(width, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU(True)]
    return nn.Sequential(*layers)


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
        *(nn.ConvTranspose2d(12, 16, 4, 1, 0, bias=False), nn.BatchNorm2d(16), nn.ReLU(True)),
        *(nn.ConvTranspose2d(16, 8, 4, 2, 1, bias=False), nn.InstanceNorm2d(8, affine=True)),
        nn.LeakyReLU(0.2, inplace=True),
        *(nn.ConvTranspose2d(8, 3, 3, 2, 1, output_padding=1, groups=1), nn.Tanh()),
    )
    return Case(model, (torch.randn(2, 12, 1, 1),))


class SuperResolution(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *(nn.Conv2d(1, 8, 5, padding=2), nn.PReLU()),
            *(nn.Conv2d(8, 4, 3, padding=1, padding_mode="reflect"), nn.PixelShuffle(2)),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        big = functional.interpolate(x, scale_factor=2, mode="bicubic", align_corners=False)
        return (self.body(x) + big).clamp(0, 1)


MODELS: dict[str, Callable[[], Case]] = {
    "mobilenet_v3_like": lambda: inverted(nn.Hardswish, nn.Hardsigmoid),
    "efficientnet_like": lambda: inverted(nn.SiLU, nn.Sigmoid),
    "deeplab": lambda: Case(DeepLab(), (torch.randn(1, 3, 32, 40),)),
    "fpn": lambda: Case(Fpn(), (torch.randn(1, 3, 32, 32),)),
    "conv3d": conv3d,
    "unet": lambda: Case(UNet(), (torch.randn(1, 3, 38, 38),)),
    "diffusion": diffusion,
    "gan": gan,
    "super_resolution": lambda: Case(SuperResolution(), (torch.rand(1, 1, 12, 10),)),
}
