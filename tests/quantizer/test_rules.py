"""Which configuration counts for an operator, and names that match nothing."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tests.support.programs.pt2e import prepared, quantize, quantized_inputs, quantizer
from trt_et import OptionError
from trt_et.quantizer import TensorRTQuantizer, int8, int8_weight_only

aten = torch.ops.aten


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(6, 8), nn.Linear(8, 6)

    def forward(self, x):
        return self.down(torch.relu(self.up(x)))


class Model(nn.Module):
    """Four linear layers (in order first.up, first.down, second.up, second.down), one product."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Block(), Block()

    def forward(self, x):
        x = self.second(self.first(x))
        return x @ x.mT


INPUTS = (torch.randn(3, 6),)
PRODUCTS = ("linear", "linear_1", "linear_2", "linear_3", "matmul")


def quantized(chosen: TensorRTQuantizer) -> str:
    """Return a letter for each product: q if its input is quantized, w if its weight, else -."""
    found = quantized_inputs(quantize(Model(), INPUTS, chosen))
    kinds = [found[name] for name in PRODUCTS]
    return "".join("q" if kind[0] else "w" if any(kind) else "-" for kind in kinds)


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        (TensorRTQuantizer(), "-----"),
        (quantizer(), "qqqqq"),
        (quantizer().set_global(None), "-----"),
        (quantizer().set_module_name("first", None), "--qqq"),
        (TensorRTQuantizer().set_module_name("second.up", int8()), "--q--"),
        (TensorRTQuantizer().set_module_type(nn.Linear, int8()), "qqqq-"),
        (quantizer().set_module_type(nn.Linear, None), "----q"),
        (quantizer().set_op(aten.linear, None), "----q"),
        (quantizer().set_op(aten.linear.default, int8_weight_only()), "wwwwq"),
        (quantizer().set_op("aten.matmul", None), "qqqq-"),
        (quantizer().set_op("aten::matmul", None), "qqqq-"),
        # The innermost name counts, then the innermost type, then the operator.
        (quantizer().set_module_name("first", None).set_module_name("first.up", int8()), "q-qqq"),
        (quantizer().set_module_type(Block, None).set_module_type(nn.Linear, int8()), "qqqqq"),
        (quantizer().set_op("aten.linear", None).set_module_type(nn.Linear, int8()), "qqqqq"),
        (quantizer().set_module_type(nn.Linear, None).set_module_name("first", int8()), "qq--q"),
    ],
)
def test_the_nearest_configuration_counts(chosen, expected):
    assert quantized(chosen) == expected


def test_a_module_whose_weight_is_used_without_a_call_has_its_name():
    attention = nn.MultiheadAttention(8, 2, batch_first=True)
    x = torch.randn(1, 3, 8)
    program = quantize(attention, (x, x, x), quantizer().set_module_name("out_proj", None))
    linear = [flags for name, flags in quantized_inputs(program).items() if "linear" in name]
    assert [flags[0] for flags in linear] == [True] * (len(linear) - 1) + [False]


@pytest.mark.parametrize("left_out", ["first", "second"])
def test_a_module_that_two_others_share_has_the_name_of_each_call(left_out):
    class Shared(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            linear = nn.Linear(6, 6)
            self.first, self.second = nn.Sequential(linear), nn.Sequential(linear)

        def forward(self, x):
            return self.second(torch.relu(self.first(x)))

    chosen = quantizer().set_module_name(left_out, None)
    found = quantized_inputs(quantize(Shared(), INPUTS, chosen))
    assert [found[name][0] for name in ("linear", "linear_1")] == [
        left_out != "first",
        left_out != "second",
    ]


@pytest.mark.parametrize(
    ("chosen", "words"),
    [
        (quantizer().set_module_name("frist.up", None), ["'frist.up'", "'first.up'"]),
        (
            quantizer().set_module_type(nn.Conv2d, None),
            ["Conv2d", "modules.linear.Linear"],
        ),
        (quantizer().set_op("aten.bmm", None), ["'aten.bmm'", "'aten.mm'", "matmul"]),
    ],
    ids=["name", "type", "operator"],
)
def test_what_the_program_does_not_have_is_an_error(chosen, words):
    with pytest.raises(OptionError) as error:
        prepared(Model(), INPUTS, chosen)
    assert [word for word in words[:1] if word not in str(error.value)] == []
    assert any(word in str(error.value) for word in words[1:])


@pytest.mark.parametrize(
    ("method", "name", "words"),
    [
        ("set_module_name", "", "module name is ''"),
        ("set_module_name", nn.Linear, "expected a name"),
        ("set_module_type", "Linear", "module type is 'Linear'"),
        ("set_module_type", int, "expected a class of modules"),
        ("set_op", "aten.relu", "operator 'aten.relu' is not quantized; expected one of"),
        ("set_op", "linear", "operator 'linear' is not quantized"),
        ("set_op", nn.Linear, "aten.linear"),
    ],
)
def test_names_of_the_wrong_kind_are_refused_at_once(method, name, words):
    with pytest.raises(OptionError, match="expected") as error:
        getattr(TensorRTQuantizer(), method)(name, int8())
    assert words in str(error.value)
