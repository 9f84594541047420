"""Indices that TensorRT takes as they are stay as they are."""

from __future__ import annotations

import pytest
import torch

from tests.support.lowering import module_of
from tests.support.models import Function
from tests.support.programs.operator_networks import ROWS, X, put
from trt_et.conversion.operators.indexing import INDEX
from trt_et.conversion.rewriting import rewrite

NEGATIVE = ROWS - 3


@pytest.mark.parametrize(
    ("function", "indices"),
    [
        (lambda x: x[ROWS, ROWS], ()),
        (lambda x, i: x[i], (ROWS,)),
        (lambda x: x[NEGATIVE], ()),
        (lambda x: put(0)(x, torch.tensor(7.0), x > 3), ()),  # A mask.
    ],
)
def test_nothing_is_added_where_tensorrt_takes_them_or_there_are_none(function, indices):
    module = module_of(Function(function), X, *indices)
    before = module.code
    rewrite(module, INDEX)
    assert module.code == before
