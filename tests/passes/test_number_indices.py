"""Indices of shape []: ``x[i]`` and ``x[i] = value`` are part of an engine."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.export import Dim

from tests.support.lowering import lower, reference
from tests.support.models import Function
from tests.support.sampled import chosen, sampled
from tests.support.simulated_gpus import check

X = torch.randn(6, 5, 5)


def largest(x, i):
    scores, found = x.sum((1, 2)), []
    for _ in range(3):
        found.append(scores.argmax())
        scores[found[-1]] = -1e9
    return torch.stack(found) + i


def swapped(x, i):
    x = x * 1
    row = x[i].clone()
    x[i] = x[i - 1]
    x[i - 1] = row
    return x


def updated(x, i):
    x = x * 1
    x[i] += 1
    row = x[i]
    row.mul_(2)
    row[i - 1] = 7.0
    row.add_(x[0])
    x[:, i, 1] = x[:, 0, 2].int()
    return x


def seen_through_another(x, i):
    x = x * 1
    row = x[i]
    x[i] = 5.0
    return row + 1, x


INDEXED = {
    "rows": lambda x, i: x[i] * 2,
    "several dimensions": lambda x, i: x[i, None, :, i - 1] * 2,
    "the last dimension": lambda x, i: x[..., i] * 2,
    "a computed index": lambda x, i: x[(i * 2).clamp(-6, 3)] * 2,
    "with a line of indices": lambda x, i: x[i, torch.tensor([0, 2])] * 2,
    "of rows of an index": lambda x, i: x[i.reshape(1)[0]][i] * 2,
    "written by their own index": largest,
    "rows that change places": swapped,
    "views that are written": updated,
    "views that see a write": seen_through_another,
}
IN_CI = ("rows", "several dimensions", "views that are written", "views that see a write")
DTYPES = (torch.int64, torch.int32, torch.int16)


@pytest.mark.parametrize("name", chosen(INDEXED, *IN_CI))
def test_an_index_may_count_from_the_end(name):
    function, partitioner = INDEXED[name], reference(full_graph=True)
    program = torch.export.export(Function(function), (X, torch.tensor(1)))
    pte = lower(program, partitioner=partitioner)
    (_,) = partitioner.report.partitions
    check(pte, function, *((X, torch.tensor(index)) for index in (1, 0, 3, -1, -4)))


@pytest.mark.parametrize("dtype", sampled(DTYPES, 2))
def test_other_integers_and_dynamic_sizes(dtype):
    function, index = INDEXED["rows"], torch.tensor(2, dtype=dtype)
    program = torch.export.export(
        Function(function), (X, index), dynamic_shapes=(({0: Dim("n", min=3, max=9)}, None),)
    )
    partitioner = reference()
    pte = lower(program, partitioner=partitioner)
    (_,) = partitioner.report.partitions
    check(pte, function, (X, index), (torch.randn(9, 5, 5), -index))


class Cache(nn.Module):
    def __init__(self):
        super().__init__()
        self.cache = nn.Buffer(torch.zeros(1, 2, 8, 4))

    def forward(self, x, i):
        self.cache[:, :, i] = x
        return self.cache.sum(2) + self.cache[:, :, i]


def test_a_buffer_is_written():
    model, x = Cache(), torch.randn(1, 2, 4)
    program = torch.export.export(model, (x, torch.tensor(1)))
    pte = lower(program, full_graph=True)
    check(pte, Cache(), (x, torch.tensor(1)), (x * 2, torch.tensor(7)), (x * 3, torch.tensor(-8)))
