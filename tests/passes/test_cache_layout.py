"""Caches whose positions are not the third of four dimensions."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import nn
from torch.export import Dim, ExportedProgram

from tests.support.lowering import finish
from tests.support.models import Function
from tests.support.simulated_gpus import check
from trt_et import TensorRTMemoryPlanningPass, TensorRTPartitioner
from trt_et.inspection import inspect_program
from trt_et.passes.cache_layout import lay_out_caches

LENGTH = 8


class Cache(nn.Module):
    """Writes rows along a dimension of a cache, and reads all of it."""

    def __init__(self, write, shape, persistent=True, dtype=torch.float32) -> None:
        super().__init__()
        self.write = write
        first = torch.arange(torch.Size(shape).numel(), dtype=dtype).reshape(shape)
        self.register_buffer("cache", first, persistent=persistent)

    def forward(self, position, rows):
        self.write(self.cache, position, rows)
        return self.cache.transpose(0, 1) * 2


def copy_rows(dim, cache, position, rows):
    cache.index_copy_(dim, torch.arange(rows.shape[dim]) + position, rows)


def put_rows(dim, cache, position, rows):
    cache[(slice(None),) * dim + (position,)] = rows


USUAL = "batch, positions, heads, width"
SHAPES = {
    USUAL: (1, (2, LENGTH, 3, 4)),
    "positions, heads, width": (0, (LENGTH, 3, 4)),
    "heads, positions, width": (1, (3, LENGTH, 4)),
    "heads, width, positions": (2, (3, 4, LENGTH)),
    "batch, layers, heads, positions, width": (3, (1, 2, 3, LENGTH, 4)),
}


def rows_for(name: str, count: int) -> torch.Tensor:
    dim, shape = SHAPES[name]
    return torch.randn(*shape[:dim], count, *shape[dim + 1 :])


def export(model: nn.Module, name: str, dynamic: bool) -> ExportedProgram:
    shapes = (None, {SHAPES[name][0]: Dim("n", max=LENGTH)}) if dynamic else None
    example = (torch.tensor([2]), rows_for(name, 3 if dynamic else 1))
    with torch.no_grad():
        return torch.export.export(model, example, dynamic_shapes=shapes)


@pytest.mark.parametrize("name", SHAPES)
def test_the_cache_has_four_dimensions_and_the_values_of_eager(name):
    dim, shape = SHAPES[name]
    model = Cache(partial(copy_rows, dim), shape, persistent=len(shape) != 3)
    exported = export(model, name, dynamic=True)
    program = lay_out_caches(exported)
    ours = program.module()
    assert ours.cache.dim() == 4
    assert ours.cache.shape[1:3] == (1, LENGTH)
    assert exported.module().cache.shape == shape
    for count, position in ((3, 0), (1, 4), (5, 2)):
        inputs = (torch.tensor([position]), rows_for(name, count))
        torch.testing.assert_close(ours(*inputs), model(*inputs))
        torch.testing.assert_close(ours.cache.reshape(shape), model.cache)


@pytest.mark.parametrize("name", SHAPES)
def test_one_position_of_any_value(name):
    dim, shape = SHAPES[name]
    model = Cache(partial(put_rows, dim), shape)
    ours = lay_out_caches(export(model, name, dynamic=False)).module()
    assert ours.cache.shape[1:3] == (1, LENGTH)
    for position in (0, -1, 5):
        inputs = (torch.tensor([position]), rows_for(name, 1))
        torch.testing.assert_close(ours(*inputs), model(*inputs))


def read_the_old_value(cache, position, rows):
    rows = rows + cache[:, 1:2]
    cache.index_copy_(1, torch.arange(1) + position, rows)


def add_rows(cache, position, rows):
    cache.index_put_((torch.tensor([0, 1]), position), rows[:, 0], accumulate=True)


def add_values(cache, position, rows):
    cache.index_add_(1, position, rows)


OTHERS = {
    "third of four dimensions": Cache(partial(copy_rows, 2), (1, 3, LENGTH, 4)),
    "numbers": Cache(partial(copy_rows, 1), (1, LENGTH, 3, 4), dtype=torch.int64),
    "old value is read": Cache(read_the_old_value, (2, LENGTH, 3, 4)),
    "two indices": Cache(add_rows, (2, LENGTH, 3, 4)),
    "sums": Cache(add_values, (2, LENGTH, 3, 4)),
}


def test_a_value_that_is_returned_keeps_its_shape():
    class Returning(Cache):
        def forward(self, position, rows):
            return self.cache.index_copy_(1, position, rows)

    model = Returning(None, SHAPES[USUAL][1])
    program = lay_out_caches(export(model, USUAL, dynamic=False))
    inputs = (torch.tensor([3]), rows_for(USUAL, 1))
    torch.testing.assert_close(program.module()(*inputs), model(*inputs))


@pytest.mark.parametrize("name", OTHERS)
def test_other_buffers_keep_their_shape(name):
    model = OTHERS[name]
    shape = list(model.cache.shape)
    dim = shape.index(LENGTH)
    rows = torch.ones(*shape[:dim], 1, *shape[dim + 1 :], dtype=model.cache.dtype)
    with torch.no_grad():
        program = torch.export.export(model, (torch.tensor([2]), rows))
    assert list(lay_out_caches(program).module().cache.shape) == shape


def lower(builder: str, name: str) -> bytes:
    dim, shape = SHAPES[name]
    model = Cache(partial(copy_rows, dim), shape)
    program = export(model, name, dynamic=True)
    partitioner = TensorRTPartitioner(builder=builder, full_graph=True)
    return bytes(finish(program, partitioner, planning=TensorRTMemoryPlanningPass()).buffer)


def test_an_engine_keeps_the_rows_of_earlier_calls():
    model = Cache(partial(copy_rows, SHAPES[USUAL][0]), SHAPES[USUAL][1])
    model.cache.zero_()
    calls = [
        (torch.tensor([position]), rows_for(USUAL, count))
        for count, position in ((4, 0), (1, 4), (3, 5))
    ]
    check(lower("reference", USUAL), model, *calls)


@pytest.mark.parametrize("name", [USUAL, "heads, positions, width"])
def test_tensorrt_rtx_writes_the_cache_in_place(name):
    (delegate,) = inspect_program(lower("tensorrt_rtx", name))[0].delegates
    assert delegate.engine is not None
    assert len(delegate.engine.aliases) == 1


def test_a_copy_into_a_single_number_is_lowered():
    model = Function(lambda x, y: (x * 2).index_copy(0, torch.tensor([0]), y) * 2)
    program = torch.export.export(model, (torch.tensor(1.0), torch.tensor(2.0)))
    assert lay_out_caches(program) is program
