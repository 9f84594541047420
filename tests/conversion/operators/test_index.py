"""What counts from the end counts from 0 by the time TensorRT sees it."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.export import Dim
from torch.fx import GraphModule, Interpreter

from tests.support.lowering import blobs, lower, module_of
from tests.support.sampled import sampled
from trt_et.conversion.operators.index import INDEX
from trt_et.conversion.prepare import rewrite
from trt_et.lowering.lower import lower_partition
from trt_et.lowering.lowered_partition import unlift

aten = torch.ops.aten
X = torch.arange(60.0).reshape(3, 4, 5)
ROWS, COLUMNS = torch.tensor([0, -1, -3]), torch.tensor([-1, 2, -4]).int()


class Indexed(nn.Module):
    """Calls a function, which may use two constants."""

    def __init__(self, function) -> None:
        super().__init__()
        self.function = function
        self.register_buffer("rows", ROWS.clone())
        self.register_buffer("columns", COLUMNS.clone())

    def forward(self, x, *indices):
        return self.function(self, x, *indices)


def put(x, indices):
    return aten.index_put(x, indices, torch.tensor(7.0))


CASES = {
    "two": (lambda m, x, i, j: x[i, j], (ROWS, COLUMNS)),
    "two with others between": (lambda m, x, i, j: x[i, :, j], (ROWS, COLUMNS)),
    "two constants": (lambda m, x: x[m.rows, m.columns], ()),
    "a constant and another": (lambda m, x, j: x[m.rows, j], (COLUMNS,)),
    "two that broadcast": (lambda m, x, i, j: x[i.unsqueeze(1), j], (ROWS, COLUMNS)),
    "put at one": (lambda m, x, j: put(x, [None, j]), (COLUMNS,)),
    "put at a constant": (lambda m, x: put(x, [None, m.columns]), ()),
    "put at two": (lambda m, x, i, j: put(x, [i, j]), (ROWS, COLUMNS)),
}


class SeesIndices(Interpreter):
    """Runs a module and remembers the indices of its gathers and scatters."""

    def __init__(self, module: GraphModule) -> None:
        super().__init__(module)
        self.seen: list[torch.Tensor] = []

    def call_function(self, target, args, kwargs):
        if target in (aten.index.Tensor, aten.index_put.default):
            self.seen += [index for index in args[1] if index is not None]
        return super().call_function(target, args, kwargs)


@pytest.mark.parametrize("case", CASES)
def test_no_negative_index_is_left_and_the_result_is_that_of_eager(case):
    function, indices = CASES[case]
    model = Indexed(function)
    module = module_of(model, X, *indices)
    rewrite(module, INDEX)
    interpreter = SeesIndices(module)
    (found,) = interpreter.run(X, *indices)
    torch.testing.assert_close(found, model(X, *indices))
    assert interpreter.seen
    assert all(bool((index >= 0).all()) for index in interpreter.seen)


@pytest.mark.parametrize("case", sampled(CASES))
def test_an_engine_is_built(case):
    function, indices = CASES[case]
    program = torch.export.export(Indexed(function), (X, *indices))
    assert len(blobs(lower(program, builder="tensorrt_rtx"))) == 1


def test_sizes_that_are_not_known_yet_are_read():
    model = Indexed(lambda m, x, i: x[i])
    dynamic = {"x": {0: Dim("rows", min=2, max=9)}, "indices": (None,)}
    program = torch.export.export(model, (X, ROWS), dynamic_shapes=dynamic)
    module = unlift(lower_partition(program.run_decompositions({}), "test").program)
    rewrite(module, INDEX)
    for rows in (3, 6):
        x = torch.randn(rows, 4, 5)
        interpreter = SeesIndices(module)
        (found,) = interpreter.run(x, ROWS)
        torch.testing.assert_close(found, x[ROWS])
        assert all(bool((index >= 0).all()) for index in interpreter.seen)
    assert len(blobs(lower(program, builder="tensorrt_rtx"))) == 1


class Positive(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("index", torch.tensor([0, 2, 1]))

    def forward(self, x):
        return x[self.index, self.index]


@pytest.mark.parametrize(
    ("model", "inputs"),
    [
        (Positive(), ()),
        (Indexed(lambda m, x, i: x[i]), (ROWS,)),
        (Indexed(lambda m, x: x[m.rows]), ()),
        (Indexed(lambda m, x: put(x, [x > 3])), ()),  # A mask.
    ],
)
def test_nothing_is_added_where_tensorrt_takes_them_or_there_are_none(model, inputs):
    module = module_of(model, X, *inputs)
    before = module.code
    rewrite(module, INDEX)
    assert module.code == before
