"""Writes by a mask become ``where``, with any values that each place of the tensor has."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.export import Dim
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from tests.support.lowering import blobs, lower
from tests.support.models import Function
from tests.support.sampled import sampled
from tests.support.simulated_gpus import check
from trt_et.mends.decompose_to_core_aten import decompose_to_core_aten
from trt_et.mends.masked_writes import select_by_mask
from trt_et.mends.unused_checks import erase_unused_checks

X, Y = torch.randn(3, 4, 6), torch.randn(3, 4, 6)
ROW, COLUMN, LABELS = torch.randn(6), torch.randn(4, 1), torch.arange(12).reshape(3, 4) % 4 - 1
LINEAR = nn.Linear(6, 6).requires_grad_(requires_grad=False)


def prompted(x, labels):
    """The prompt encoder of Segment Anything."""
    x = x.sin()
    x[labels == -1] = 0.0
    x[labels == -1] += ROW
    x[labels == 1] += ROW[None] * 2
    return x


def assigned(x, y):
    x = x.clone()
    x[x > 0] = (y[x > 0] * 2 + 1).exp()
    return x


def of_columns(x, y):
    x = x.clone()
    x[:, y[0, :, 0] > 0] = -1
    x[..., ROW > 0] -= 0.5
    x[:, y[0] > 0] = COLUMN[0]
    x[:, y[0] > 1] *= y[:, :1].sum(2)
    return x


def of_integers(x, labels):
    x, labels = x * 2, labels.clone()
    labels[labels > 1] = 7
    labels[labels < 1] += 5
    x[labels == 7] /= 2
    return x, labels


def of_rows(x, labels):
    x = x * 2
    x[labels == 1] = LINEAR(x[labels == 1]).relu()
    return x


def accumulated(x, y):
    return torch.index_put(x * 1, [y > 0], ROW[:1], accumulate=True)


WRITES = {
    "a prompt": (prompted, (X, LABELS)),
    "values of the same places": (assigned, (X, Y)),
    "columns": (of_columns, (X, Y)),
    "integers": (of_integers, (X, LABELS)),
    "rows through a layer": (of_rows, (X, LABELS)),
    "added": (accumulated, (X, Y)),
}


@pytest.mark.parametrize("name", sampled(WRITES, 2))
@pytest.mark.parametrize("dynamic", [False, True])
def test_they_are_choices(name, dynamic):
    function, inputs = WRITES[name]
    batch = {0: Dim("batch", min=1, max=8)}
    shapes = ((batch, batch),) if dynamic else None
    program = torch.export.export(Function(function), inputs, dynamic_shapes=shapes)
    selected = erase_unused_checks(select_by_mask(decompose_to_core_aten(program)))
    values = [node.meta.get("val") for node in selected.graph.nodes]
    sizes = [size for v in values if isinstance(v, torch.Tensor) for size in v.shape]
    assert not any(isinstance(s, torch.SymInt) and free_unbacked_symbols(s) for s in sizes)
    assert not selected.graph.find_nodes(
        op="call_function", target=torch.ops.aten.index_put.default
    )
    for batch in (1, 2, 3) if dynamic else (3,):
        call = [each[:batch] for each in inputs]
        torch.testing.assert_close(selected.module()(*call), function(*call))


def test_one_engine_makes_them():
    batch = {0: Dim("batch", min=1, max=8)}
    program = torch.export.export(Function(prompted), (X, LABELS), dynamic_shapes=((batch, batch),))
    pte = lower(program, full_graph=True)
    assert len(blobs(pte)) == 1
    check(pte, prompted, (X, LABELS), (X[:1], LABELS[:1]))


def test_rows_that_a_mask_selects_are_results():
    def selected(x, labels):
        return LINEAR(x)[labels > 0]

    program = torch.export.export(Function(selected), (X, LABELS))
    check(lower(program), selected, (X, LABELS), (X, LABELS * 0))


def reversed_rows(x, labels):
    x = x * 2
    x[labels == 1] = x[labels == 1].flip(0)
    return x


def of_whole_quotients(x, labels):
    labels = labels.clone()
    labels[labels != 0] = 7 // labels[labels != 0]
    return x * labels[..., None]


@pytest.mark.parametrize("function", [reversed_rows, of_whole_quotients])
def test_values_that_depend_on_other_places_stay_as_they_are(function):
    program = torch.export.export(Function(function), (X, LABELS))
    selected = select_by_mask(decompose_to_core_aten(program))
    assert selected.graph.find_nodes(op="call_function", target=torch.ops.aten.index_put.default)
    torch.testing.assert_close(selected.module()(X, LABELS), function(X, LABELS))
