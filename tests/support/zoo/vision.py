"""Networks that look at images, written by hand as people write them."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from torch.export import Dim
from torch.nn import functional

from tests.support.zoo.case import Case

__all__ = ["MODELS"]


class Bottleneck(nn.Module):
    def __init__(self, width: int, inner: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(width, inner, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(inner)
        self.conv2 = nn.Conv2d(inner, inner, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(inner)
        self.conv3 = nn.Conv2d(inner, inner * 4, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(inner * 4)
        self.relu = nn.ReLU(inplace=True)
        self.shortcut = None
        if stride != 1 or width != inner * 4:
            self.shortcut = nn.Sequential(
                nn.Conv2d(width, inner * 4, 1, stride, bias=False), nn.BatchNorm2d(inner * 4)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        y += x if self.shortcut is None else self.shortcut(x)
        return self.relu(y)


class ResNet50(nn.Module):
    """Full depth, an eighth of the width."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 7, 2, 3, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2, 1),
        )
        blocks: list[nn.Module] = []
        before = width
        for stage, depth in enumerate((3, 4, 6, 3)):
            inner = width * 2**stage
            for index in range(depth):
                blocks.append(Bottleneck(before, inner, 2 if stage and index == 0 else 1))
                before = inner * 4
        self.blocks = nn.Sequential(*blocks)
        self.pool = nn.AdaptiveAvgPool2d((1, 1))
        self.head = nn.Linear(before, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.flatten(self.pool(self.blocks(self.stem(x))), 1))


def resnet50() -> Case:
    model = ResNet50()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.running_mean, -0.1, 0.1)
            nn.init.uniform_(module.running_var, 0.9, 1.1)
    batch = Dim("batch", max=4)
    return Case(model, (torch.randn(2, 3, 64, 64),), ({0: batch},), ((torch.randn(3, 3, 64, 64),),))


class SqueezeExcite(nn.Module):
    def __init__(self, width: int, gate: type[nn.Module]) -> None:
        super().__init__()
        self.down = nn.Conv2d(width, 4, 1)
        self.up = nn.Conv2d(4, width, 1)
        self.gate = gate()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = functional.adaptive_avg_pool2d(x, 1)
        return x * self.gate(self.up(functional.relu(self.down(y))))


class InvertedResidual(nn.Module):
    def __init__(self, width: int, act: type[nn.Module], gate: type[nn.Module] | None) -> None:
        super().__init__()
        inner = width * 4
        layers = [
            nn.Conv2d(width, inner, 1, bias=False),
            nn.BatchNorm2d(inner),
            act(),
            nn.Conv2d(inner, inner, 3, 1, 1, groups=inner, bias=False),
            nn.BatchNorm2d(inner),
            act(),
        ]
        if gate is not None:
            layers.append(SqueezeExcite(inner, gate))
        layers += [nn.Conv2d(inner, width, 1, bias=False), nn.BatchNorm2d(width)]
        self.layers = nn.Sequential(*layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.layers(x)


def _inverted(act: type[nn.Module], gate: type[nn.Module] | None) -> Case:
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, 2, 1, bias=False),
        nn.BatchNorm2d(8),
        act(),
        InvertedResidual(8, act, gate),
        InvertedResidual(8, act, gate),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(1),
        nn.Dropout(0.2),
        nn.Linear(8, 10),
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
        found.append(
            functional.interpolate(
                self.pooled(y), size=y.shape[-2:], mode="bilinear", align_corners=False
            )
        )
        y = self.head(torch.cat(found, 1))
        y = functional.interpolate(y, size=x.shape[-2:], mode="bilinear", align_corners=False)
        return y.argmax(1)


def deeplab() -> Case:
    return Case(DeepLab(), (torch.randn(1, 3, 32, 40),))


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


def fpn() -> Case:
    return Case(Fpn(), (torch.randn(1, 3, 32, 32),))


def conv3d() -> Case:
    model = nn.Sequential(
        nn.Conv3d(2, 4, 3, padding=1),
        nn.BatchNorm3d(4),
        nn.ReLU(),
        nn.MaxPool3d(2),
        nn.Conv3d(4, 4, 3, stride=2, padding=1),
        nn.AdaptiveAvgPool3d(1),
        nn.Flatten(),
        nn.Linear(4, 3),
    )
    return Case(model, (torch.randn(1, 2, 8, 8, 8),))


def resnet_bf16() -> Case:
    model = nn.Sequential(nn.Conv2d(3, 8, 3, 2), nn.BatchNorm2d(8), Bottleneck(8, 4), nn.Flatten())
    return Case(model.bfloat16(), (torch.randn(1, 3, 16, 16).bfloat16(),), atol=1e-1)


MODELS: dict[str, Callable[[], Case]] = {
    "resnet50": resnet50,
    "resnet_bf16": resnet_bf16,
    "mobilenet_v2_like": lambda: _inverted(nn.ReLU6, None),
    "mobilenet_v3_like": lambda: _inverted(nn.Hardswish, nn.Hardsigmoid),
    "efficientnet_like": lambda: _inverted(nn.SiLU, nn.Sigmoid),
    "deeplab": deeplab,
    "fpn": fpn,
    "conv3d": conv3d,
}
