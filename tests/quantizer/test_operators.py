"""Which tensors of which operators are quantized."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tests.support.models import Function
from tests.support.programs.pt2e import quantize, quantized_inputs, quantizer, scales
from trt_et.quantizer import TensorRTQuantizer, fp8, int8, int8_weight_only


def calls(program, *names):
    found = quantized_inputs(program)
    return {name: found[name] for name in names}


@pytest.mark.parametrize(
    ("layer", "shape", "call", "channels", "axis"),
    [
        (nn.Linear(6, 4), (2, 6), "linear", 4, 0),
        (nn.Linear(6, 4, bias=False), (2, 3, 6), "linear", 4, 0),
        (nn.Conv1d(6, 4, 3), (2, 6, 8), "conv1d", 4, 0),
        (nn.Conv2d(6, 4, 3), (2, 6, 8, 8), "conv2d", 4, 0),
        (nn.Conv2d(6, 6, 3, groups=6, padding="same"), (2, 6, 8, 8), "conv2d", 6, 0),
        (nn.Conv3d(6, 4, 3), (2, 6, 4, 4, 4), "conv3d", 4, 0),
        (nn.ConvTranspose1d(6, 4, 3), (2, 6, 8), "conv_transpose1d", 4, 1),
        (nn.ConvTranspose2d(6, 4, 3), (2, 6, 8, 8), "conv_transpose2d", 4, 1),
        (nn.ConvTranspose3d(6, 4, 3), (2, 6, 4, 4, 4), "conv_transpose3d", 4, 1),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else None,
)
def test_a_layer_has_a_scale_for_its_input_and_one_for_each_output_channel(
    layer, shape, call, channels, axis
):
    program = quantize(layer, (torch.randn(shape),))
    scale, weight = scales(program, call)
    assert isinstance(scale, float)
    assert weight == ((channels,), axis)
    assert quantized_inputs(program)[call][2:] in ([], [False])  # The bias.
    (result,) = program.graph.output_node().args[0]
    assert result.name == call  # Results are not quantized.


def test_one_scale_for_a_weight():
    program = quantize(nn.Linear(6, 4), (torch.randn(2, 6),), quantizer(int8(per_channel=False)))
    assert all(isinstance(scale, float) for scale in scales(program, "linear"))


def test_zero_points_are_0_and_weights_have_no_minus_128():
    program = quantize(nn.Linear(6, 4), (torch.rand(2, 6) + 5,))
    for node in program.graph.nodes:
        if "dequantize_per_tensor" in str(node.target):
            assert node.args[2:5] == (0, -128, 127)
        elif "dequantize_per_channel" in str(node.target):
            assert node.args[4:6] == (-127, 127)
    weight, zeros = program.state_dict["_frozen_param0"], program.state_dict["_zero_point_0"]
    assert weight.dtype is torch.int8
    assert weight.abs().max() == 127
    assert not zeros.any()


class Product(nn.Module):
    def __init__(self, shape: tuple[int, ...], function) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(shape))
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x, self.weight)


@pytest.mark.parametrize(
    ("function", "shape", "call", "expected"),
    [
        (lambda x, w: x @ w, (6, 4), "matmul", [((4,), 1)]),
        (lambda x, w: w @ x.mT, (4, 6), "matmul", [((4,), 0)]),
        (lambda x, w: torch.addmm(x[:1, :4], x, w), (6, 4), "addmm", [((4,), 1)]),
        (lambda x, w: F.linear(x, w.t()), (6, 4), "linear", [((4,), 0)]),
    ],
    ids=["right", "left", "addmm", "transposed"],
)
def test_the_channels_of_a_weight_are_those_of_the_result(function, shape, call, expected):
    program = quantize(Product(shape, function), (torch.randn(2, 6),))
    assert [scale for scale in scales(program, call) if isinstance(scale, tuple)] == expected
    assert len(scales(program, call)) == 2


def test_an_outer_product_is_left_in_float():
    rotary = Function(lambda x: x[:, :, None] @ torch.arange(4.0)[None, None, :])
    assert quantized_inputs(quantize(rotary, (torch.randn(2, 6),)))["matmul"] == [False, False]


def attention(**how):
    return Function(lambda *inputs: F.scaled_dot_product_attention(*inputs, **how))


def heads(number: int) -> torch.Tensor:
    return torch.randn(2, number, 5, 8)


MASK = torch.ones(5, 5, dtype=torch.bool).tril()
MASK[2] = False  # A query that sees no key.
ATTENTIONS = {
    "plain": ({}, (heads(4), heads(4), heads(4))),
    "scaled": ({"scale": 0.2}, (heads(4), heads(4), heads(4))),
    "causal": ({"is_causal": True}, (heads(4), heads(4), heads(4))),
    "grouped": ({"enable_gqa": True}, (heads(4), heads(2), heads(2))),
    "mask": ({}, (heads(4), heads(4), heads(4), MASK)),
    "sum": ({}, (heads(4), heads(4), heads(4), torch.randn(5, 5))),
}


@pytest.mark.parametrize("case", ATTENTIONS)
def test_both_products_of_attention_are_quantized(case):
    how, inputs = ATTENTIONS[case]
    model = attention(**how)
    program = quantize(model, inputs)
    products = [flags for name, flags in quantized_inputs(program).items() if "matmul" in name]
    assert products == [[True, True], [True, True]]
    torch.testing.assert_close(program.module()(*inputs), model(*inputs), atol=0.1, rtol=0)


def test_attention_that_is_left_out_stays_one_operator():
    inputs = (heads(4), heads(4), heads(4))
    chosen = quantizer().set_op("aten.scaled_dot_product_attention", None)
    program = quantize(attention(), inputs, chosen)
    assert quantized_inputs(program) == {"scaled_dot_product_attention": [False, False, False]}
    program = quantize(attention(), inputs, quantizer(int8_weight_only()))
    assert "scaled_dot_product_attention" in quantized_inputs(program)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_attention_in_half_precision_is_quantized_to_int8_only_if_it_is_named(dtype):
    inputs = tuple(heads(4).to(dtype) for _ in range(3))
    assert "scaled_dot_product_attention" in quantized_inputs(quantize(attention(), inputs))
    named = TensorRTQuantizer().set_op("aten.scaled_dot_product_attention.default", int8())
    products = quantized_inputs(quantize(attention(), inputs, named))
    assert [flags for name, flags in products.items() if "matmul" in name] == [[True] * 2] * 2
    in_fp8 = quantized_inputs(quantize(attention(), inputs, quantizer(fp8())))
    assert "scaled_dot_product_attention" not in in_fp8


class Sums(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(4, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)

    def forward(self, x):
        return torch.relu(self.norm(self.conv(x)) + x) + x


def test_one_branch_of_a_sum_with_a_convolution_is_quantized():
    program = quantize(Sums(), (torch.randn(2, 4, 8, 8),))
    assert calls(program, "add", "add_1") == {"add": [False, True], "add_1": [False, False]}
    # One tensor, one scale.
    assert scales(program, "add") == scales(program, "conv2d")[:1]
    assert "batch_norm" not in program.graph_module.code


class Shared(nn.Module):
    def __init__(self, pool) -> None:
        super().__init__()
        self.pool = pool
        self.conv = nn.Conv2d(6, 4, 1)

    def forward(self, x, y):
        both = torch.cat([x, y], 1)
        return self.conv(self.pool(both))


@pytest.mark.parametrize("pool", [nn.MaxPool2d(2), nn.AvgPool2d(2), nn.AdaptiveAvgPool2d(2)])
def test_concatenation_and_pooling_before_a_product_share_one_scale(pool):
    inputs = (torch.randn(2, 3, 4, 4), 3 * torch.randn(2, 3, 4, 4))
    program = quantize(Shared(pool), inputs)
    found = quantized_inputs(program)
    assert all(all(found[name]) for name in found if "cat" in name or "pool" in name)
    every = {
        node.args[1] for node in program.graph.nodes if "quantize_per_tensor" in str(node.target)
    }
    assert len(every) == 1


def test_concatenation_without_a_product_is_left_in_float():
    model = Function(lambda x: torch.cat([x, x * 2]))
    assert not any(quantized_inputs(quantize(model, (torch.randn(2, 3),)))["cat"])


def test_an_embedding_has_a_scale_for_each_row():
    tokens = (torch.tensor([[1, 2, 3]]),)
    for config in (int8(), int8_weight_only()):
        program = quantize(nn.Embedding(10, 4), tokens, quantizer(config))
        assert scales(program, "embedding") == [((10,), 0)]


def test_a_buffer_that_the_program_writes_to_is_no_weight():
    class Cache(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("cache", torch.zeros(4, 6))

        def forward(self, x):
            self.cache.index_copy_(0, torch.tensor([1]), x[:1])
            return x @ self.cache.mT

    program = quantize(Cache(), (torch.randn(2, 6),))
    assert all(isinstance(scale, float) for scale in scales(program, "matmul"))
    assert len(scales(program, "matmul")) == 2


def test_weights_alone_leave_activations_in_float():
    program = quantize(nn.Linear(6, 4), (torch.randn(2, 6),), quantizer(int8_weight_only()))
    assert quantized_inputs(program)["linear"] == [False, True, False]
