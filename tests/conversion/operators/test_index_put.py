"""``index_put`` is given to TensorRT with values in their full shape, and means the same."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.export import Dim

from tests.support.lowering import blobs, lower, module_of
from tests.support.programs.kv_cache_models import Cache
from tests.support.sampled import sampled
from trt_et.conversion.operators.index_put import INDEX_PUT
from trt_et.conversion.prepare import rewrite
from trt_et.lowering.lower import lower_partition
from trt_et.lowering.lowered_partition import unlift

aten = torch.ops.aten


class Put(nn.Module):
    """Writes values at an index of one dimension."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, x, index, values):
        return aten.index_put(x, [None] * self.dim + [index], values) + 1


X = torch.arange(2 * 2 * 8 * 4.0).reshape(2, 2, 8, 4)
ONE, TWO = torch.tensor([5]), torch.tensor([3, 1])
CASES = {
    # Without a batch: laid over the wrong dimensions, whether or not their sizes agree.
    "rows for all batches": (2, ONE, torch.randn(2, 1, 4)),
    "as many rows as batches and heads": (2, TWO, torch.randn(2, 2, 4)),
    "the last dimensions": (1, torch.tensor([1, 0]), torch.randn(8, 4)),
    "one value": (2, TWO, torch.randn(1)),
    "a number": (2, TWO, torch.tensor(7.0)),
    "all of them": (2, TWO, torch.randn(2, 2, 2, 4)),
    "one row for two positions": (2, TWO, torch.randn(2, 2, 1, 4)),
    "an index without dimensions": (2, torch.tensor(5), torch.randn(2, 2, 4)),
    "an index without dimensions, broadcast": (1, torch.tensor(1).int(), torch.randn(4)),
    "the first dimension": (0, ONE * 0 + 1, torch.randn(2, 8, 4)),
}


@pytest.mark.parametrize("case", CASES)
def test_values_have_their_full_shape_and_the_result_is_that_of_eager(case):
    dim, index, values = CASES[case]
    model = Put(dim)
    module = module_of(model, X, index, values)
    rewrite(module, INDEX_PUT)
    (put,) = (node for node in module.graph.nodes if node.target is aten.index_put.default)
    shape = [*X.shape[:dim], index.numel(), *X.shape[dim + 1 :]]
    assert list(put.args[2].meta["val"].shape) == shape
    assert list(put.args[1][-1].meta["val"].shape) == [index.numel()]
    torch.testing.assert_close(module(X, index, values)[0], model(X, index, values))


@pytest.mark.parametrize("case", sampled(CASES, 5))
def test_an_engine_is_built(case):
    dim, index, values = CASES[case]
    program = torch.export.export(Put(dim), (X, index, values))
    assert len(blobs(lower(program, builder="tensorrt_rtx"))) == 1


def test_a_cache_of_one_batch_is_built():
    """``cache[:, :, position] = rows``, whose batch of 1 export drops: "Cannot broadcast"."""

    def put(cache, position, rows):
        cache[:, :, position] = rows

    inputs = (ONE, torch.randn(1, 3, 1, 4))
    program = torch.export.export(Cache(put, (1, 3, 8, 4)), inputs)
    assert len(blobs(lower(program, builder="tensorrt_rtx", state_in_place=False))) == 1


def test_other_calls_are_left_as_they_are():
    class Other(nn.Module):
        def __init__(self, indices) -> None:
            super().__init__()
            self.indices = indices

        def forward(self, x, index, values):
            return aten.index_put(x, self.indices(index), values)

    for indices, values in (
        (lambda i: [i, i], torch.randn(4)),
        (lambda i: [i.unsqueeze(0)], torch.randn(4)),
        (lambda i: [None, None, torch.arange(8) == i], torch.randn(4)),
    ):
        module = module_of(Other(indices), X, ONE * 0, values)
        before = module.code
        rewrite(module, INDEX_PUT)
        assert module.code == before


def test_values_of_a_size_that_is_not_known_are_left_as_they_are():
    dynamic = ({0: Dim("batch", max=9)}, None, None)
    program = torch.export.export(
        Put(2), (X, ONE, torch.randn(2, 1, 4)), dynamic_shapes=dynamic
    ).run_decompositions({})
    module = unlift(lower_partition(program, "test").program)
    before = module.code
    rewrite(module, INDEX_PUT)
    assert module.code == before
