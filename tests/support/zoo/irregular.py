"""Networks over tables, points and graphs, written by hand as people write them."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from torch.export import Dim
from torch.nn import functional

from tests.support.zoo.case import Case

__all__ = ["MODELS"]


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
    "recommender": recommender,
    "pointnet": pointnet,
    "gcn": gcn,
}
