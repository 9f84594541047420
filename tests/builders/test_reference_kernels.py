"""What the reference builder takes apart equals torch's own operators."""

from __future__ import annotations

import pytest
import torch
from executorch.runtime import Runtime
from torch.nn import functional

from tests.lowering_helpers import blobs, lower
from tests.simulated_gpus import load_runtime
from trt_et.builders import reference_kernels as kernels

DEEP = (2, 4, 9, 8, 7)


@pytest.fixture
def x():
    torch.manual_seed(0)
    return torch.randn(DEEP)


@pytest.mark.parametrize(
    "args",
    [
        (3,),
        (2, 1, 1),
        ((2, 3, 2), (1, 2, 2), (1, 1, 0)),
        (3, 2, 1, 2),
        (3, 2, 1, (1, 2, 1), True),
    ],
)
def test_max_pooling(x, args):
    for batched in (x, x[0]):
        found = kernels._max_pool3d(batched, *args)
        torch.testing.assert_close(found, functional.max_pool3d(batched, *args))


@pytest.mark.parametrize(
    "args",
    [
        (3,),
        ((2, 3, 2), (1, 2, 2), (1, 1, 0)),
        (3, 2, 1, True),
        (3, 2, 1, True, False),
        (3, 2, 1, False, True, 7),
    ],
)
def test_average_pooling(x, args):
    found = kernels._avg_pool3d(x, *args)
    torch.testing.assert_close(found, functional.avg_pool3d(x, *args))


@pytest.mark.parametrize("size", [1, (4, 3, 5), (9, 1, 7)])
def test_adaptive_average_pooling(x, size):
    found = kernels._adaptive_avg_pool3d(x, size)
    torch.testing.assert_close(found, functional.adaptive_avg_pool3d(x, size))


@pytest.mark.parametrize(
    ("stride", "padding", "dilation", "groups"),
    [((1, 1, 1), (0, 0, 0), (1, 1, 1), 1), ((2, 1, 2), (1, 2, 0), (1, 2, 1), 2)],
)
def test_convolution(x, stride, padding, dilation, groups):
    weight, bias = torch.randn(6, 4 // groups, 3, 2, 3), torch.randn(6)
    found = kernels._convolution(
        x, weight, bias, stride, padding, dilation, False, (0, 0, 0), groups
    )
    expected = functional.conv3d(x, weight, bias, stride, padding, dilation, groups)
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dim", [0, -1])
def test_sorting(dim, descending):
    x = torch.randperm(20).reshape(4, 5)
    for found, want in zip(
        kernels._sort(x, dim, descending), torch.sort(x, dim, descending), strict=True
    ):
        torch.testing.assert_close(found, want)


def test_a_program_that_needs_none_of_it_stays_as_it_is(x):
    class Flat(torch.nn.Module):
        def forward(self, x):
            return functional.conv2d(x, torch.ones(2, 4, 1, 1)).relu()

    program = torch.export.export(Flat(), (x[:, :, 0],)).run_decompositions({})
    assert kernels.within_kernels(program) is program


@pytest.mark.parametrize("pad", [(0, 0, 1, -1), (-2, 1), (0, -3, -1, -1, 2, 0)])
def test_negative_padding_runs_like_eager(pad):
    _runs_like_eager(lambda x: functional.pad(x * 2, pad, value=0.5), torch.randn(3, 4, 5))


@pytest.mark.parametrize("x", [torch.tensor(3.0), torch.tensor(3)])
def test_a_sum_of_one_number_runs_like_eager(x):
    _runs_like_eager(lambda x: torch.cumsum(x, 0), x)


def _runs_like_eager(function, x):
    class Model(torch.nn.Module):
        def forward(self, x):
            return function(x)

    load_runtime()
    pte = lower(torch.export.export(Model(), (x,)), builder="reference")
    assert len(blobs(pte)) == 1
    (found,) = Runtime.get().load_program(pte).load_method("forward").execute([x])
    torch.testing.assert_close(found, function(x))
