"""Complex numbers of a program become real ones: a real and an imaginary part."""

from __future__ import annotations

import logging

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim, export

from tests.support.models import Function
from tests.support.programs.operator_networks import lower_and_compare
from tests.support.sampled import sampled
from trt_et.mends.complex_numbers import is_complex, use_real_numbers


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


def written(z: Tensor) -> Tensor:
    y = z.clone().mul_(2)
    y[:, 0] = 1j
    return y


# From a complex tensor of shape (2, 3, 4), to any.
OPERATORS = {
    "products": lambda z: z * (z + 1) * z.real * (2 - 1j) * 1j,
    "products of matrices": lambda z: torch.einsum("bij,bkj->bik", z, z) + z @ z.mH,
    "a product with a real matrix": lambda z: z @ torch.ones(4, 5).to(torch.complex64),
    "sums": lambda z: 1 - z + torch.sub(z, z.real, alpha=2) - (3 + 1j) + z.imag,
    "quotients": lambda z: z / 2 + z / (z + 2) + 1 / (z + 3) + (z + 1).reciprocal(),
    "powers": lambda z: z**2 + z**0.5 + z.sqrt() + z.square() + torch.zeros_like(z) ** 3,
    "exponentials": lambda z: z.exp() + torch.exp(1j * z.real) + (z + 3).log() + z.tanh(),
    "absolute values and angles": lambda z: z.abs() ** 2 + z.angle() + z.sgn().real,
    "conjugates": lambda z: z.conj() * z.transpose(1, 2).mH,
    "norms": lambda z: torch.linalg.vector_norm(z, dim=-1) + z.var(-1),
    "reductions": lambda z: z.sum(1) + z.mean(1) + z.prod(1) + z.cumsum(1)[:, 1],
    "joins": lambda z: torch.cat([z, torch.stack([z, z * 2], 1).flatten(1, 2)], 1),
    "pieces": lambda z: z.unbind(1)[0].chunk(2, -1)[1] * z.split([2, 2], -1)[0][:, 1],
    "moves": lambda z: (
        z.flip(1).roll(1, -1).permute(2, 0, 1).reshape(2, -1)[None].expand(3, -1, -1)
    ),
    "indices": lambda z: z[:, [0, 2]].index_select(1, torch.tensor([1, 0])).repeat(1, 2, 1),
    "choices": lambda z: torch.where(z.real > 0, z, z * 2).masked_fill(z.imag > 0, 0),
    "constants": lambda z: z + torch.zeros(3, 4, dtype=torch.complex64) + torch.full((4,), 1 + 2j),
    "paddings": lambda z: torch.fft.fftshift(nn.functional.pad(z, (1, 2)).tril()),
    "views": lambda z: z.view(torch.float32),
    "comparisons": lambda z: (z == z.conj()) | torch.isfinite(z),
    "writes in place": written,
    "other dtypes": lambda z: (z.to(torch.complex128) * 2).to(torch.complex64),
}
REAL = {
    "rotated": rotated,
    "parts": parts,
    "an input": lambda x: torch.view_as_real(torch.view_as_complex(x[..., :2])),
    "float64": lambda x: torch.view_as_real(numbers(x.double()).to(torch.complex128) * 2),
}


def of_complex(function) -> nn.Module:
    def call(x: Tensor) -> Tensor:
        result = function(numbers(x))
        return torch.view_as_real(result.resolve_conj()) if result.is_complex() else result

    return Function(call)


def exported(model: nn.Module, *, dynamic: bool = True):
    x = torch.randn(2, 3, 8)
    sizes = ({1: Dim("n", min=1, max=64)},) if dynamic else None
    shapes = (sizes,) if dynamic and isinstance(model, Function) else sizes  # It takes *inputs.
    return export(model, (x,), dynamic_shapes=shapes, strict=True), x


@pytest.mark.parametrize("name", REAL)
def test_real_numbers_give_the_same_values(name):
    model = Function(REAL[name])
    program, x = exported(model)
    real = use_real_numbers(program)
    assert any(map(is_complex, program.graph.nodes))
    assert not any(map(is_complex, real.graph.nodes))
    for each in (x, torch.randn(2, 7, 8)):
        torch.testing.assert_close(real.module()(each), model(each))


@pytest.mark.parametrize("name", OPERATORS)
def test_operators_have_a_form_in_real_numbers(name):
    model = of_complex(OPERATORS[name])
    x = torch.randn(2, 3, 8)
    real = use_real_numbers(export(model, (x,)))
    assert not any(map(is_complex, real.graph.nodes))
    torch.testing.assert_close(real.module()(x), model(x))


@pytest.mark.parametrize("name", sampled(OPERATORS, 4))
def test_operators_between_real_tensors_are_one_engine(name):
    program = export(of_complex(OPERATORS[name]), (torch.randn(2, 3, 8),))
    _, partitioner = lower_and_compare(program)
    assert len(partitioner.report.partitions) == 1
    assert not partitioner.report.not_delegated


def test_rotary_angles_are_in_the_engine():
    _, partitioner = lower_and_compare(exported(Function(rotated))[0])
    assert len(partitioner.report.partitions) == 1


class Constants(nn.Module):
    """As Meta's Llama keeps its rotations."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("turns", torch.randn(6, 4, dtype=torch.complex64)[:, :4])
        self.register_buffer("unused", torch.randn(2, dtype=torch.complex64))

    def forward(self, x: Tensor) -> Tensor:
        return torch.view_as_real(numbers(x) * self.turns[: x.shape[1]])


def test_complex_buffers_become_two_real_ones():
    program, _ = exported(Constants(), dynamic=False)
    real = use_real_numbers(program)
    assert not any(map(is_complex, real.graph.nodes))
    assert not {"turns", "unused"} & set(real.graph_signature.buffers)
    _, partitioner = lower_and_compare(program)
    assert len(partitioner.report.partitions) == 1


def test_an_operator_without_a_form_stays_and_is_named(caplog):
    model = of_complex(lambda z: torch.linalg.inv(z[:, :, :3]) * 2)
    program, x = exported(model, dynamic=False)
    with caplog.at_level(logging.WARNING):
        real = use_real_numbers(program)
    assert "linalg_inv" in caplog.text
    torch.testing.assert_close(real.module()(x), model(x))


def test_complex_inputs_and_outputs_keep_their_dtype():
    program = export(Function(lambda x: x * 2j), (torch.randn(2, 3, dtype=torch.complex64),))
    real = use_real_numbers(program)
    (x,) = program.example_inputs[0]
    torch.testing.assert_close(real.module()(x), x * 2j)


def test_a_program_without_complex_numbers_is_returned_as_it_is():
    program, _ = exported(Function(lambda x: x + 1))
    assert use_real_numbers(program) is program
