"""Recurrent networks and parts of transformers, written by hand as people write them."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from torch.export import Dim
from torch.nn import functional

from tests.support.zoo.case import Case

__all__ = ["MODELS"]


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
    "lstm": lstm,
    "gru": gru,
    "rnn": rnn,
    "lstm_cell": lstm_cell,
    "mixture_of_experts": mixture_of_experts,
    "gathered_experts": gathered_experts,
    "conformer_block": conformer_block,
    "masked_transformer": masked_transformer,
    "selective_scan": selective_scan,
    "tacotron": tacotron,
    "rope": rope,
    "rope_half": rope_half,
    "sampler": sampler,
}
