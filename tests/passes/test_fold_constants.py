"""Constants in dtypes that TensorRT does not have are computed at the export."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.export import Dim

from tests.support.lowering import blobs, lower
from tests.support.models import Function
from tests.support.sampled import sampled
from tests.support.simulated_gpus import check
from trt_et.passes.fold_constants import fold_constants

X = torch.randn(2, 4, 4)


class Buffers(nn.Module):
    """Buffers of a mask, of positions and of frequencies."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mask", (torch.arange(4) % 2).to(torch.uint8))
        self.register_buffer("places", torch.tensor([3, 1, 0, 2], dtype=torch.int16))
        self.register_buffer("angles", torch.rand(4, dtype=torch.float64))
        self.register_buffer("table", torch.randn(4, 4))

    def forward(self, x):
        x = x.masked_fill(self.mask.bool(), 0.5) + self.table[self.places.long()]
        return x * self.angles.cos().to(x.dtype) + x * self.mask - self.places


def rotated(x):
    frequencies = 1 / 10000 ** (torch.arange(0, 4, 2, dtype=torch.float64) / 4)
    angles = torch.outer(torch.arange(x.shape[1], dtype=torch.float64), frequencies)
    return x * torch.cat([angles.cos(), angles.sin()], -1).float()


def written(x):
    mask = torch.zeros(4, 4, dtype=torch.uint8)
    mask[1:] = 1
    mask.fill_diagonal_(0)
    diagonal = torch.zeros(4, 4)
    return x.masked_fill(mask.bool(), 0.0) * diagonal.fill_diagonal_(2)


def chained(x):
    steps = torch.linspace(0, 1, 4, dtype=torch.float64).float()
    return x + steps + (steps.double() * 2).float()


MODELS = {
    "buffers": Buffers(),
    "identities": Function(lambda x: (x + torch.eye(4)).masked_fill(torch.eye(4).bool(), 3.0)),
    "a triangle of int8": Function(
        lambda x: x.masked_fill(torch.ones(4, 4, dtype=torch.int8).triu(1).bool(), 0.0) + 1
    ),
    "even steps": Function(
        lambda x: (
            x + torch.linspace(-1, 1, 4, dtype=torch.float64).float() * torch.logspace(0, 2, 4)
        )
    ),
    "angles": Function(rotated),
    "a number of float64": Function(lambda x: x * torch.tensor(0.5, dtype=torch.float64)),
    "what is written in place": Function(written),
    "one of another": Function(chained),
}


@pytest.mark.parametrize("name", sampled(MODELS, 2))
def test_one_engine_has_them(name):
    batch = ({0: Dim("batch", min=1, max=8)},)
    shapes = batch if name == "buffers" else (batch,)
    program = torch.export.export(MODELS[name], (X,), dynamic_shapes=shapes)
    pte = lower(program, full_graph=True)
    assert len(blobs(pte)) == 1
    check(pte, MODELS[name], (X,), (X[:1],))


def test_the_program_has_no_buffer_that_only_constants_need():
    program = torch.export.export(Buffers(), (X,))
    folded = fold_constants(program)
    buffers = folded.graph_signature.inputs_to_buffers.values()
    assert all(name.startswith("_trt_et_constant_") for name in buffers)
    torch.testing.assert_close(folded.module()(X), program.module()(X))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (x * torch.rand(4, dtype=torch.float64)).float(),
        lambda x: x.double() * torch.arange(4),
        lambda x: x + torch.arange(4),
    ],
)
def test_other_values_stay_operators(function):
    program = torch.export.export(Function(function), (X,))
    assert fold_constants(program) is program


def test_a_weight_of_8_bits_stays_small():
    class Quantized(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("weight", torch.randint(-9, 9, (4, 4)).to(torch.int8))

        def forward(self, x):
            return x @ self.weight.t().to(x.dtype)

    program = torch.export.export(Quantized(), (X,))
    assert fold_constants(program) is program


class Tables(nn.Module):
    """Weights that other constants are computed from, and some that are only moved."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(16, 8))
        self.weight = nn.Parameter(torch.randn(8, 8))

    def forward(self, x):
        rows = torch.ones(4, 8).cumsum(0) * 0.1 + self.table[torch.arange(4) * 2]
        return (x + rows.sin()) @ self.weight.t()


def operators(program: torch.export.ExportedProgram) -> list[str]:
    return [node.target.name() for node in program.graph.nodes if node.op == "call_function"]


def test_computed_constants_are_folded_and_weights_are_only_moved():
    program = torch.export.export(Tables(), (torch.randn(2, 4, 8),))
    folded = fold_constants(program)
    x = torch.randn(2, 4, 8)
    torch.testing.assert_close(folded.module()(x), program.module()(x))
    assert len(folded.constants) == len(program.constants) + 1
    assert not {"aten::cumsum", "aten::sin", "aten::index.Tensor"} & set(operators(folded))
    assert any(name in operators(folded) for name in ("aten::t", "aten::numpy_T"))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.sum() + (torch.arange(1500.0)[:, None] * torch.arange(1500.0)).sin(),
        lambda x: x + torch.arange(1 << 26).double().float().cos().sum() * 0,
    ],
    ids=["larger than a few MB", "large on the way"],
)
def test_large_constants_stay_operators(function):
    program = torch.export.export(Function(function), (X,))
    folded = fold_constants(program)
    assert all(value.nbytes < 1 << 22 for value in folded.constants.values())
