"""Tensors of several dtypes are joined in the dtype that torch promotes them to."""

from __future__ import annotations

import pytest
import torch
from torch.export import Dim

from tests.support.lowering import blobs, lower
from tests.support.models import Function
from tests.support.sampled import sampled
from tests.support.simulated_gpus import check

WHOLE, X = torch.arange(6).reshape(2, 3), torch.randn(2, 3)
JOINS = {
    "cat": lambda n, x: torch.cat([n, x, x > 0, n.int()], 1) * 2,
    "stack": lambda n, x: torch.stack([n.int(), n], -1) + 1,
    "hstack": lambda n, x: torch.hstack([x.half(), x]) * 2,
    "bytes of integers as floats": lambda n, x: torch.cat([x, n.int()]).sin(),
    "a padding": lambda n, x: torch.cat([n, -torch.ones(n.shape[0], 1)], 1) * 2,
}


@pytest.mark.parametrize("name", sampled(JOINS, 2))
def test_one_engine_joins_them(name):
    batch = {0: Dim("batch", min=1, max=8)}
    program = torch.export.export(
        Function(JOINS[name]), (WHOLE, X), dynamic_shapes=((batch, batch),)
    )
    pte = lower(program, full_graph=True)
    assert len(blobs(pte)) == 1
    check(pte, JOINS[name], (WHOLE, X), (WHOLE[:1], X[:1]))
