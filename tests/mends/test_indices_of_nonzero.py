"""The indices of ``nonzero`` are right for whatever reads them, also if there are none."""

from __future__ import annotations

import pytest
import torch
from torch.export import Dim

from tests.support.lowering import lower
from tests.support.models import Function, Unary
from tests.support.simulated_gpus import check

X = torch.randn(3, 5)


def of_one_tensor(x):
    found = x > 0
    rows, columns = torch.where(found)
    return found.nonzero() + found.nonzero(), x[rows, columns], argwhere(x)


def argwhere(x):
    return torch.argwhere(x * 2 > 0).float() * 0.5


READERS = {
    "an output": (lambda x: (x * 2 > 0).nonzero(), X),
    "an input": (torch.nonzero, X > 0),
    "argwhere": (argwhere, X),
    "a sum": (lambda x: x.clamp(min=0).nonzero() + 1, X),
    "columns": (lambda x: x[(i := (x > 0).nonzero())[:, 0], i[:, 1]] * 2, X),
    "gathered": (lambda x: x.flatten()[(x > 0).nonzero()], X),
    "a list": (lambda x: (x > 0).nonzero(as_tuple=True)[1] + 1, X),
    "where": (lambda x: torch.where(x * 3 > 0), X),
    "one dimension": (lambda x: (x > 0).nonzero()[:, 0] * 2, X[0]),
    "four dimensions": (lambda x: (x[None, :, None] > 0).nonzero().unbind(1)[3], X),
    "transposed": (lambda x: x[(edges := (x > 0).nonzero().t())[0], edges[1]] * 2, X),
    "several calls": (of_one_tensor, X),
}


@pytest.mark.parametrize("name", READERS)
def test_readers_see_the_indices(name):
    function, x = READERS[name]
    pte = lower(torch.export.export(Function(function), (x,)))
    none = torch.zeros_like(x)
    one = none.clone().flatten().index_fill(0, torch.tensor(2), 1).reshape(x.shape)
    check(pte, function, (x,), (none,), (one,), (x.flip(0),))


def test_sizes_may_be_dynamic():
    sizes = ({0: Dim("rows", min=2, max=8), 1: Dim("columns", min=2, max=9)},)
    pte = lower(torch.export.export(Unary(of_one_tensor), (X,), dynamic_shapes=sizes))
    check(pte, of_one_tensor, (X,), (torch.randn(8, 2),), (torch.zeros(2, 9),))
