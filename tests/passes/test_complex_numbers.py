"""Complex numbers of a program become pairs of real numbers."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim, export

from tests.support.models import Function
from tests.support.programs.operator_networks import lower_and_compare
from trt_et.passes.complex_numbers import is_complex, use_real_numbers


def numbers(x: Tensor) -> Tensor:
    return torch.view_as_complex(x.unflatten(-1, (-1, 2)))


def rotated(x: Tensor) -> Tensor:
    """Rotary angles as in DeepSeek-V2 and Llama 4."""
    angles = torch.arange(x.shape[1])[:, None] * 0.1 ** torch.arange(x.shape[2] // 2)
    turns = torch.polar(torch.ones_like(angles), angles) * 1.5
    return torch.view_as_real(numbers(x) * turns[None]).flatten(2)


def parts(x: Tensor) -> Tensor:
    values = numbers(x)[:, -1, None, 1:].unsqueeze(-2)
    real = x[:, :1, None, 1:2]
    return torch.view_as_real(real * values * torch.complex(x[0, 0, :1], x[0, 0, 1:2]))


KNOWN = {
    "rotated": rotated,
    "parts": parts,
    "an input": lambda x: torch.view_as_real(torch.view_as_complex(x[..., :2])),
    "float64": lambda x: torch.view_as_real(numbers(x.double()).to(torch.complex128) * 2),
}


def exported(model: nn.Module):
    x = torch.randn(2, 3, 8)
    sizes = ({1: Dim("n", min=1, max=64)},)
    shapes = (sizes,) if isinstance(model, Function) else sizes  # It takes *inputs.
    return export(model, (x,), dynamic_shapes=shapes, strict=True), x


@pytest.mark.parametrize("name", KNOWN)
def test_real_numbers_give_the_same_values(name):
    model = Function(KNOWN[name])
    program, x = exported(model)
    real = use_real_numbers(program)
    assert any(map(is_complex, program.graph.nodes))
    assert not any(map(is_complex, real.graph.nodes))
    for each in (x, torch.randn(2, 7, 8)):
        torch.testing.assert_close(real.module()(each), model(each))


def test_rotary_angles_are_in_the_engine():
    _, partitioner = lower_and_compare(exported(Function(rotated))[0])
    assert len(partitioner.report.partitions) == 1


class Constants(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("turns", torch.randn(4, dtype=torch.complex64))

    def forward(self, x: Tensor) -> Tensor:
        return torch.view_as_real(numbers(x) * self.turns)


@pytest.mark.parametrize(
    "model",
    [
        Constants(),
        Function(lambda x: numbers(x).abs()),
        Function(lambda x: torch.view_as_real(numbers(x) * 1j)),
        Function(lambda x: torch.view_as_real(numbers(x.double()).to(torch.complex64))),
        Function(lambda x: x + 1),
    ],
)
def test_a_program_with_other_complex_numbers_or_none_is_returned_as_it_is(model):
    program, _ = exported(model)
    assert use_real_numbers(program) is program
