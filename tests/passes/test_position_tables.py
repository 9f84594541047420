"""Functions of positions in float64 are tables for the largest length; engines take their rows."""

from __future__ import annotations

import pytest
import torch
from torch.export import Dim

from tests.support.lowering import blobs, lower
from tests.support.models import Function
from tests.support.sampled import sampled
from tests.support.simulated_gpus import check
from trt_et.inspection import inspect_program

DOUBLE = torch.float64
X = torch.randn(2, 12, 8)
RATES = 1 / 10000 ** (torch.arange(0, 8, 2, dtype=DOUBLE) / 8)


def positions(x):
    return torch.arange(x.shape[1], dtype=DOUBLE)


def sines(x):
    angles = positions(x)[:, None] * RATES
    return x + torch.cat([angles.sin(), angles.cos()], -1).float()


def rotations(x):
    angles = torch.outer(torch.arange(0, x.shape[1]).double(), RATES)
    cosines, sines = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    a, b = x.chunk(2, -1)
    return torch.cat([a * cosines - b * sines, a * sines + b * cosines], -1)


def pairs(x):
    angles = torch.einsum("i,j->ij", positions(x), RATES)
    return x * torch.stack([angles.sin(), angles.cos()], -1).flatten(1).float()


def written_by_columns(x):
    angles = positions(x).view(-1, 1) * RATES
    table = torch.zeros(x.shape[1], 8)
    table[:, 0::2] = angles.sin().float()
    table[:, 1::2] = angles.cos().float()
    return x + table


def window(x):
    shape = 0.5 - 0.5 * torch.cos(2 * torch.pi * positions(x) / 63)
    return x * shape[None, :, None].to(x.dtype), shape.float()


def share_of_length(x):
    return x * (positions(x) / x.shape[1]).float()[:, None]


def written_before(x):
    places = torch.arange(x.shape[1])
    places.add_(3)
    return x * (places.double() / 4).sin().float()[:, None]


def sums_of_rows(x):
    return x * positions(x).cumsum(0).float()[:, None] + positions(x).flip(0).float()[:, None]


def of_an_input(x):
    return x + (positions(x)[:, None] * x[0, 0].double()).sin().float()


def total(x):
    return x + (positions(x) @ positions(x)).float()


def lowered(function, largest: int = 64) -> bytes:
    sizes = (({1: Dim("length", min=2, max=largest)},),)
    program = torch.export.export(Function(function), (X,), dynamic_shapes=sizes)
    pte: bytes = lower(program)
    check(pte, Function(function), (X,), (torch.randn(2, 2, 8),), (torch.randn(2, 64, 8),))
    return pte


def is_on_the_cpu(pte: bytes) -> bool:
    return any("arange" in name for name in inspect_program(pte)[0].cpu_operators)


@pytest.mark.parametrize(
    "function", sampled([sines, rotations, pairs, written_by_columns, window], 2)
)
def test_one_engine_has_the_rows(function):
    pte = lowered(function)
    assert len(blobs(pte)) == 1
    assert not is_on_the_cpu(pte)


@pytest.mark.parametrize(
    "function", sampled([share_of_length, written_before, sums_of_rows, of_an_input, total], 2)
)
def test_what_does_not_depend_on_the_position_alone_is_no_table(function):
    assert is_on_the_cpu(lowered(function))


def test_a_table_that_would_be_large_is_not_made():
    pte = lowered(sines, largest=1 << 20)
    assert is_on_the_cpu(pte)
    assert len(pte) < 100_000
