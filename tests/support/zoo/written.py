"""Models written by hand, as people write them: vision, audio, recurrent, generative."""

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


class Lstm(nn.Module):
    def __init__(self, kind: type[nn.RNNBase], **options: object) -> None:
        super().__init__()
        self.rnn = kind(8, 16, num_layers=2, batch_first=True, **options)
        self.head = nn.Linear(16 * (2 if options.get("bidirectional") else 1), 4)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y, state = self.rnn(x)
        return self.head(y), state[0] if isinstance(state, tuple) else state


def lstm() -> Case:
    return Case(Lstm(nn.LSTM, bidirectional=True), (torch.randn(2, 3, 8),))


def gru() -> Case:
    return Case(Lstm(nn.GRU), (torch.randn(2, 5, 8),))


def rnn() -> Case:
    return Case(Lstm(nn.RNN), (torch.randn(2, 5, 8),))


class LstmCell(nn.Module):
    """Unrolled by hand; the state is kept between calls."""

    def __init__(self) -> None:
        super().__init__()
        self.x = nn.Linear(8, 64)
        self.h = nn.Linear(16, 64, bias=False)
        self.register_buffer("hidden", torch.zeros(1, 16))
        self.register_buffer("cell", torch.zeros(1, 16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden, cell = self.hidden, self.cell
        seen = []
        for step in x.unbind(1):
            i, f, g, o = (self.x(step) + self.h(hidden)).chunk(4, 1)
            cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
            hidden = o.sigmoid() * cell.tanh()
            seen.append(hidden)
        self.hidden.copy_(hidden)
        self.cell.copy_(cell)
        return torch.stack(seen, 1)


def lstm_cell() -> Case:
    calls = tuple((torch.randn(1, 4, 8),) for _ in range(2))
    return Case(LstmCell(), (torch.randn(1, 4, 8),), calls=calls)


class MixtureOfExperts(nn.Module):
    """Every expert runs; topk of the gate decides what counts."""

    def __init__(self, width: int = 16, experts: int = 4, chosen: int = 2) -> None:
        super().__init__()
        self.gate = nn.Linear(width, experts)
        self.up = nn.Parameter(torch.randn(experts, width, 32) * 0.2)
        self.down = nn.Parameter(torch.randn(experts, 32, width) * 0.2)
        self.chosen = chosen

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens = x.reshape(-1, x.shape[-1])
        weight, index = torch.topk(self.gate(tokens).softmax(-1), self.chosen, dim=-1)
        weight = weight / weight.sum(-1, keepdim=True)
        dense = torch.zeros(tokens.shape[0], self.gate.out_features).scatter(1, index, weight)
        inner = functional.silu(torch.einsum("td,edh->teh", tokens, self.up))
        outer = torch.einsum("teh,ehd->ted", inner, self.down)
        return (outer * dense.unsqueeze(-1)).sum(1).reshape(x.shape)


def mixture_of_experts() -> Case:
    return Case(MixtureOfExperts(), (torch.randn(2, 6, 16),))


class GatheredExperts(MixtureOfExperts):
    """Gathers the weights of the chosen experts, token by token."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens = x.reshape(-1, x.shape[-1])
        weight, index = torch.topk(self.gate(tokens).softmax(-1), self.chosen, dim=-1)
        inner = functional.gelu(torch.einsum("td,tkdh->tkh", tokens, self.up[index]))
        outer = torch.einsum("tkh,tkhd->tkd", inner, self.down[index])
        return (outer * weight.unsqueeze(-1)).sum(1).reshape(x.shape)


def gathered_experts() -> Case:
    return Case(GatheredExperts(), (torch.randn(2, 6, 16),))


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


class ConformerBlock(nn.Module):
    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.first = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 32), nn.SiLU(), nn.Linear(32, width)
        )
        self.norm = nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, 2, batch_first=True)
        self.before = nn.LayerNorm(width)
        self.pointwise = nn.Conv1d(width, 2 * width, 1)
        self.depthwise = nn.Conv1d(width, width, 7, padding=3, groups=width)
        self.batch = nn.BatchNorm1d(width)
        self.after = nn.Conv1d(width, width, 1)

    def forward(self, x: torch.Tensor, padding: torch.Tensor) -> torch.Tensor:
        x = x + 0.5 * self.first(x)
        y = self.norm(x)
        x = x + self.attention(y, y, y, key_padding_mask=padding, need_weights=False)[0]
        y = functional.glu(self.pointwise(self.before(x).transpose(1, 2)), 1)
        return x + self.after(functional.silu(self.batch(self.depthwise(y)))).transpose(1, 2)


def conformer_block() -> Case:
    padding = torch.zeros(2, 9, dtype=torch.bool)
    padding[1, 6:] = True
    return Case(ConformerBlock(), (torch.randn(2, 9, 16), padding))


def masked_transformer() -> Case:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = nn.Transformer(16, 2, 1, 1, 32, batch_first=True)

        def forward(self, source, target, padding):
            causal = nn.Transformer.generate_square_subsequent_mask(target.shape[1])
            return self.model(
                source,
                target,
                tgt_mask=causal,
                src_key_padding_mask=padding,
                memory_key_padding_mask=padding,
                tgt_is_causal=True,
            )

    padding = torch.zeros(2, 6, dtype=torch.bool)
    padding[0, 4:] = True
    return Case(Model(), (torch.randn(2, 6, 16), torch.randn(2, 5, 16), padding))


class Recommender(nn.Module):
    """Embeddings of categories, dense features, pairwise products, a wide part."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(size, 8) for size in (10, 20, 30))
        self.bottom = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 8), nn.ReLU())
        self.top = nn.Sequential(nn.Linear(14, 16), nn.ReLU(), nn.Linear(16, 1), nn.Sigmoid())
        row, column = torch.tril_indices(4, 4, -1)
        self.register_buffer("row", row)
        self.register_buffer("column", column)

    def forward(self, dense: torch.Tensor, *categories: torch.Tensor) -> torch.Tensor:
        x = self.bottom(dense)
        found = [x, *(t(c) for t, c in zip(self.tables, categories, strict=True))]
        stacked = torch.stack(found, 1)
        products = torch.bmm(stacked, stacked.transpose(1, 2))
        return self.top(torch.cat([x, products[:, self.row, self.column]], 1))


def recommender() -> Case:
    batch = Dim("batch", max=16)
    sizes = (10, 20, 30)

    def inputs(rows: int) -> tuple[torch.Tensor, ...]:
        return (torch.randn(rows, 5), *(torch.randint(0, n, (rows,)) for n in sizes))

    return Case(
        Recommender(), inputs(4), ({0: batch}, tuple({0: batch} for _ in sizes)), (inputs(9),)
    )


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


class SelectiveScan(nn.Module):
    """A state-space layer: a loop over time, unrolled by export."""

    def __init__(self, width: int = 8, state: int = 4) -> None:
        super().__init__()
        self.proj = nn.Linear(width, 2 * width)
        self.conv = nn.Conv1d(width, width, 3, padding=2, groups=width)
        self.step = nn.Linear(width, width)
        self.bc = nn.Linear(width, 2 * state)
        self.log_a = nn.Parameter(torch.rand(width, state).log())
        self.d = nn.Parameter(torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x, gate = self.proj(x).chunk(2, -1)
        x = functional.silu(self.conv(x.transpose(1, 2))[..., : x.shape[1]].transpose(1, 2))
        delta = functional.softplus(self.step(x))
        b, c = self.bc(x).chunk(2, -1)
        decay = torch.exp(delta.unsqueeze(-1) * -self.log_a.exp())
        state = torch.zeros_like(decay[:, 0])
        seen = []
        for t in range(x.shape[1]):
            state = decay[:, t] * state + (delta * x)[:, t].unsqueeze(-1) * b[:, t].unsqueeze(1)
            seen.append((state * c[:, t].unsqueeze(1)).sum(-1))
        return (torch.stack(seen, 1) + x * self.d) * functional.silu(gate)


def selective_scan() -> Case:
    return Case(SelectiveScan(), (torch.randn(2, 5, 8),))


class PointNet(nn.Module):
    """Shared layers over points, symmetric maximum, a learned transform."""

    def __init__(self) -> None:
        super().__init__()
        self.transform = nn.Sequential(nn.Conv1d(3, 8, 1), nn.BatchNorm1d(8), nn.ReLU())
        self.matrix = nn.Linear(8, 9)
        self.layers = nn.Sequential(nn.Conv1d(3, 16, 1), nn.BatchNorm1d(16), nn.ReLU())
        self.head = nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pooled = self.transform(x).max(dim=2).values
        matrix = self.matrix(pooled).view(-1, 3, 3) + torch.eye(3)
        moved = torch.bmm(matrix, x)
        return functional.log_softmax(self.head(torch.amax(self.layers(moved), 2)), -1)


def pointnet() -> Case:
    # torch.eye counts in bytes, which TensorRT has no tensors of.
    left = ("aten::arange.start_step", "aten::unsqueeze_copy.default", "aten::eq.Tensor")
    return Case(PointNet(), (torch.randn(2, 3, 20),), left=left)


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


class Tacotron(nn.Module):
    """Text to spectrogram: embeddings, convolutions, a GRU, a duration predictor."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(20, 16, padding_idx=0)
        self.convs = nn.Sequential(
            nn.Conv1d(16, 16, 5, padding=2), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.5)
        )
        self.rnn = nn.GRU(16, 8, batch_first=True, bidirectional=True)
        self.up = nn.ConvTranspose1d(16, 8, 4, 2, 1)

    def forward(self, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        mask = tokens.ne(0).unsqueeze(1)
        y = self.convs(self.embedding(tokens).transpose(1, 2)).masked_fill(~mask, 0)
        y, _ = self.rnn(y.transpose(1, 2))
        return self.up(y.transpose(1, 2)), mask.sum(-1)


def tacotron() -> Case:
    return Case(Tacotron(), (torch.randint(0, 20, (2, 7)),))


class Rope(nn.Module):
    """Complex-free rotary attention with grouped heads and RMSNorm, in half precision."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(width)
        self.q, self.k, self.v = (nn.Linear(width, n, bias=False) for n in (32, 16, 16))
        self.o = nn.Linear(width, width, bias=False)
        angle = torch.arange(16)[:, None] / 100 ** (torch.arange(4) / 4)
        self.register_buffer("cos", angle.cos().repeat(1, 2))
        self.register_buffer("sin", angle.sin().repeat(1, 2))

    def rotate(self, x: torch.Tensor) -> torch.Tensor:
        n = x.shape[2]
        low, high = x.chunk(2, -1)
        return x * self.cos[:n] + torch.cat([-high, low], -1) * self.sin[:n]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, n, _ = x.shape
        y = self.norm(x)
        q = self.rotate(self.q(y).view(b, n, 4, 8).transpose(1, 2))
        k = self.rotate(self.k(y).view(b, n, 2, 8).transpose(1, 2)).repeat_interleave(2, 1)
        v = self.v(y).view(b, n, 2, 8).transpose(1, 2).repeat_interleave(2, 1)
        seen = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.o(seen.transpose(1, 2).reshape(b, n, -1))


def rope() -> Case:
    length = Dim("length", min=2, max=16)
    return Case(Rope(), (torch.randn(1, 6, 32),), ({1: length},), ((torch.randn(1, 11, 32),),))


def rope_half() -> Case:
    return Case(Rope().half(), (torch.randn(1, 6, 32).half(),), atol=2e-2)


def resnet_bf16() -> Case:
    model = nn.Sequential(nn.Conv2d(3, 8, 3, 2), nn.BatchNorm2d(8), Bottleneck(8, 4), nn.Flatten())
    return Case(model.bfloat16(), (torch.randn(1, 3, 16, 16).bfloat16(),), atol=1e-1)


class Gcn(nn.Module):
    """Messages along edges: gather, scatter_add, index_add."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(4, 8), nn.Linear(8, 3)

    def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        source, target = edges[0], edges[1]
        y = self.one(x)
        total = torch.zeros_like(y).index_add(0, target, y.index_select(0, source))
        y = functional.relu(total)
        z = self.two(y)[source]
        index = target.unsqueeze(1).expand(-1, 3)
        return torch.zeros(x.shape[0], 3).scatter_add(0, index, z)


def gcn() -> Case:
    return Case(
        Gcn(),
        (torch.randn(6, 4), torch.randint(0, 6, (2, 10))),
        partitions=2,
        left=("aten::index_put.default", "aten::select_copy.int"),
    )


class Sampler(nn.Module):
    """What comes after logits: temperature, top-k, top-p by sorting, arg max."""

    def forward(self, logits: torch.Tensor) -> tuple[torch.Tensor, ...]:
        logits = logits / 0.7
        kth = torch.topk(logits, 5, -1).values[..., -1:]
        logits = logits.masked_fill(logits < kth, float("-inf"))
        ordered, index = torch.sort(logits, descending=True)
        total = ordered.softmax(-1).cumsum(-1)
        dropped = (total > 0.9).roll(1, -1)
        keep = torch.where(torch.arange(ordered.shape[-1]) == 0, False, dropped)
        ordered = ordered.masked_fill(keep, float("-inf"))
        probability = ordered.softmax(-1)
        return probability, index[..., :5], probability.argmax(-1)


def sampler() -> Case:
    return Case(Sampler(), (torch.randn(2, 20),))


MODELS: dict[str, Callable[[], Case]] = {
    "resnet50": resnet50,
    "unet": unet,
    "lstm": lstm,
    "lstm_cell": lstm_cell,
    "mixture_of_experts": mixture_of_experts,
    "gathered_experts": gathered_experts,
    "gru": gru,
    "rnn": rnn,
    "mobilenet_v2_like": lambda: _inverted(nn.ReLU6, None),
    "mobilenet_v3_like": lambda: _inverted(nn.Hardswish, nn.Hardsigmoid),
    "efficientnet_like": lambda: _inverted(nn.SiLU, nn.Sigmoid),
    "deeplab": deeplab,
    "fpn": fpn,
    "diffusion": diffusion,
    "conformer_block": conformer_block,
    "masked_transformer": masked_transformer,
    "recommender": recommender,
    "gan": gan,
    "conv3d": conv3d,
    "super_resolution": super_resolution,
    "selective_scan": selective_scan,
    "pointnet": pointnet,
    "vae": vae,
    "tacotron": tacotron,
    "rope": rope,
    "rope_half": rope_half,
    "resnet_bf16": resnet_bf16,
    "gcn": gcn,
    "sampler": sampler,
}
