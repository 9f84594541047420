"""The networks of scattering and indexing compute what eager computes."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from tests.support.programs.operator_networks import (
    LINE,
    ROWS,
    WHOLE,
    X,
    assert_network_equals_eager,
    assert_one_engine,
    put,
    randn,
)

aten = torch.ops.aten

CASES = {
    **{
        f"a diagonal {offset} to the right": (
            lambda x, offset=offset: torch.diagonal(x, offset, 2, 0),
            (X,),
        )
        for offset in (-4, -1, 0, 2)
    },
    "looked up by known indices": (lambda w: F.embedding(ROWS, w), (X[0],)),
    "put behind a dimension": (put(None, 0, 1), (X, randn(3, 3), ROWS, ROWS)),
    "one number put by a mask": (
        lambda x, n: aten.index_put(x, [x > 1], n),
        (X, torch.tensor(0.5)),
    ),
    "one number put in rows by a mask": (
        lambda x, n, m: aten.index_put(x, [m], n),
        (WHOLE, torch.tensor([7]), X[..., 0] > 0),
    ),
    "put around a dimension": (put(0, None, 1), (X, randn(3, 4), ROWS, ROWS)),
    "put at a table": (put(0), (randn(9, 4), randn(2, 3, 4), torch.arange(6).reshape(2, 3))),
    "put a value behind a dimension": (put(None, 0, 1), (X, randn(3), ROWS, ROWS)),
    "one index to select by": (lambda x, i: x.index_select(1, i), (X, torch.tensor(1))),
    "a larger source": (
        lambda x, i, s: x.scatter(2, i, s),
        (X, X.argsort(2)[:, :2, :3].contiguous(), randn(3, 4, 5)),
    ),
    **{
        f"the {reduce} of what is scattered, {'with' if own else 'without'} what is there": (
            lambda x, i, s, reduce=reduce, own=own: x.scatter_reduce(
                1, i, s, reduce, include_self=own
            ),
            (X, WHOLE.abs() % 4, X * 2),
        )
        for reduce in ("sum", "mean", "prod", "amax", "amin")
        for own in (True, False)
    },
    "the largest of scattered integers": (
        lambda x, i, s: x.scatter_reduce(0, i, s, "amax"),
        (WHOLE, WHOLE.abs() % 3, WHOLE * 2),
    ),
    "scattered and added": (
        lambda x, i, s: x.scatter_add(2, i, s),
        (X, (WHOLE.abs() % 5)[:2, :3], X * 2),
    ),
    "rows scattered and added": (
        lambda x, i, s: x.scatter_add(1, i.view(1, 6, 1).expand(3, 6, 5), s),
        (X, torch.tensor([3, 0, 0, 1, 3, 3]), randn(3, 6, 5)),
    ),
    "some rows scattered and added": (
        lambda x, i, s: x.scatter_add(1, i[:4].view(1, 4, 1).expand(3, 4, 5), s),
        (X, torch.tensor([3, 0, 0, 1, 3, 3]), randn(3, 6, 5)),
    ),
    "a part of rows scattered and added": (
        lambda x, i, s: x.scatter_add(1, i.view(1, 6, 1).expand(2, 6, 3), s),
        (X, torch.tensor([3, 0, 0, 1, 3, 3]), randn(2, 6, 5)),
    ),
    "a column scattered and added": (
        lambda x, i, s: x.scatter_add(0, i[:, None].expand(2, 1), s),
        (randn(3, 2), torch.tensor([0, 1]), randn(2, 2)),
    ),
    "integers scattered and added": (
        lambda x, i, s: x.scatter_add(1, i.view(1, 6, 1).expand(3, 6, 5), s),
        (WHOLE, torch.tensor([3, 0, 0, 1, 3, 3]), torch.cat([WHOLE, WHOLE[:, :2]], 1)),
    ),
    "added at an index": (
        lambda x, i, s: aten.index_put(x, [i], s, True),
        (X, torch.tensor([2, 0, -1, 2]), randn(4, 4, 5)),
    ),
    "numbers added at an index": (
        lambda x, i, s: aten.index_put(x, [i], s, True),
        (LINE, torch.tensor([2, 0, -1, 2]), randn(4)),
    ),
    "added at an index in the middle": (
        lambda x, i, s: aten.index_put(x, [None, i], s, True),
        (X.half(), torch.tensor([2, 0, 2]), randn(3, 3, 5).half()),
    ),
    "a scattered integer": (lambda x, i: x.scatter(1, i, 2), (WHOLE, X.argsort(1))),
}
BUILT = ("put behind a dimension",)


@pytest.mark.parametrize("case", CASES)
def test_the_network_equals_eager(case):
    assert_network_equals_eager(*CASES[case])


@pytest.mark.parametrize("case", BUILT)
def test_an_engine_is_built(case):
    assert_one_engine(*CASES[case])
