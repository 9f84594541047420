"""Networks over sequences, tables, points and graphs, written by hand as people write them."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from torch.export import Dim
from torch.nn import functional

from tests.support.zoo.case import Case


class Lstm(nn.Module):
    def __init__(self, kind: type[nn.RNNBase], **options: object) -> None:
        super().__init__()
        self.rnn = kind(8, 16, num_layers=2, batch_first=True, **options)
        self.head = nn.Linear(16 * (2 if options.get("bidirectional") else 1), 4)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y, state = self.rnn(x)
        return self.head(y), state[0] if isinstance(state, tuple) else state


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


class MaskedTransformer(nn.Transformer):
    def __init__(self) -> None:
        super().__init__(16, 2, 1, 1, 32, batch_first=True)

    def forward(self, source, target, padding):
        causal = self.generate_square_subsequent_mask(target.shape[1])
        masks = {"tgt_mask": causal, "tgt_is_causal": True}
        masks |= dict.fromkeys(("src_key_padding_mask", "memory_key_padding_mask"), padding)
        return super().forward(source, target, **masks)


def masked_transformer() -> Case:
    padding = torch.zeros(2, 6, dtype=torch.bool)
    padding[0, 4:] = True
    return Case(MaskedTransformer(), (torch.randn(2, 6, 16), torch.randn(2, 5, 16), padding))


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


MODELS: dict[str, Callable[[], Case]] = {
    "lstm": lambda: Case(Lstm(nn.LSTM, bidirectional=True), (torch.randn(2, 3, 8),)),
    "gru": lambda: Case(Lstm(nn.GRU), (torch.randn(2, 5, 8),)),
    "rnn": lambda: Case(Lstm(nn.RNN), (torch.randn(2, 5, 8),)),
    "lstm_cell": lstm_cell,
    "mixture_of_experts": lambda: Case(MixtureOfExperts(), (torch.randn(2, 6, 16),)),
    "masked_transformer": masked_transformer,
    "rope": rope,
    "rope_half": lambda: Case(Rope().half(), (torch.randn(1, 6, 32).half(),), atol=2e-2),
    "sampler": lambda: Case(Sampler(), (torch.randn(2, 20),)),
    "recommender": recommender,
    "pointnet": pointnet,
    "gcn": gcn,
}
