"""Quantized programs become quantized engines."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tests.support.lowering import blobs, lower, reference
from tests.support.models import Function
from tests.support.network_evaluator import evaluate
from tests.support.programs.operator_networks import assert_network_equals_eager
from tests.support.programs.quantized_models import Mlp, Residual, quantize, quantized
from tests.support.programs.quantized_networks import Network, needs_rtx, plan
from tests.support.sampled import sampled
from tests.support.simulated_gpus import check
from trt_et import TensorRTPartitioner
from trt_et.engine_info import decode_blob

quantized_decomposed = torch.ops.quantized_decomposed

VARIANTS = [  # A model, whether zero points are 0, whether weights have a scale for each channel.
    ("residual", True, True),
    ("residual", False, True),
    ("block", True, False),
    ("block", False, True),
]


def output_scale(program: torch.export.ExportedProgram) -> float:
    scales = [
        node.args[1]
        for node in program.graph.nodes
        if node.target is quantized_decomposed.dequantize_per_tensor.default
    ]
    return float(max(scales))


@pytest.mark.parametrize("variant", sampled(VARIANTS), ids=str)
def test_it_is_one_partition_and_runs_like_eager_to_one_step(variant):
    name, symmetric, per_channel = variant
    program, inputs = quantized(name, symmetric=symmetric, per_channel=per_channel)
    partitioner = reference()
    pte = lower(program, partitioner=partitioner)
    step = output_scale(program) * 1.01
    check(pte, program.module(), inputs, inputs, atol=step, rtol=0)
    assert not partitioner.report.not_delegated
    (partition,) = partitioner.report.partitions
    assert "quantized_decomposed::quantize_per_tensor.default" in partition.operators
    assert all(tensor.dtype is torch.float32 for tensor in partition.inputs + partition.outputs)


@needs_rtx
@pytest.mark.parametrize("variant", sampled(VARIANTS), ids=str)
def test_tensorrt_rtx_builds_it(variant):
    name, symmetric, per_channel = variant
    program, _ = quantized(name, symmetric=symmetric, per_channel=per_channel)
    assert len(blobs(lower(program, builder="tensorrt_rtx"))) == 1


@pytest.mark.long
@needs_rtx
def test_each_operator_is_one_layer_where_the_zero_point_is_0():
    program, _ = quantized("mlp")
    kinds = Network(program).kinds
    assert (kinds["QUANTIZE"], kinds["DEQUANTIZE"]) == (3, 5)
    plain = torch.export.export(Mlp().eval(), (torch.randn(4, 16),))
    assert kinds["ELEMENTWISE"] == Network(plain).kinds["ELEMENTWISE"]


def round_trip(x: torch.Tensor, zero_point: int, low: int = -128, dtype=torch.int8):
    how = (0.25, zero_point, low, torch.iinfo(dtype).max, dtype)
    q = quantized_decomposed.quantize_per_tensor.default(x, *how)
    return quantized_decomposed.dequantize_per_tensor.default(q, *how) * 2


@needs_rtx
def test_another_zero_point_is_computed_around_the_layers():
    found = Network(
        torch.export.export(Function(lambda x: round_trip(x, -3)), (torch.randn(2, 4),))
    )
    assert (found.kinds["QUANTIZE"], found.kinds["DEQUANTIZE"]) == (1, 1)


@needs_rtx
def test_numbers_between_two_steps_are_rounded_as_torch_rounds_them():
    def round_trips(x):
        return [round_trip(x, zero, low) for zero in (0, 1, 2, -3, 127) for low in (-128, -127)]

    assert_network_equals_eager(round_trips, (torch.arange(-400, 400) * 0.125,))


@needs_rtx
def test_numbers_between_two_steps_of_a_channel_are_rounded_as_torch_rounds_them():
    def round_trip(x):
        scales, zeros = torch.tensor([0.25, 0.5, 1.0]), torch.tensor([0, 3, -5])
        how = (scales, zeros, 1, -128, 127, torch.int8)
        q = quantized_decomposed.quantize_per_channel.default(x, *how)
        return quantized_decomposed.dequantize_per_channel.default(q, *how) * 2

    halves = (torch.arange(-400, 400) * 0.125)[:, None].expand(800, 3).contiguous()
    assert_network_equals_eager(round_trip, (halves,))


@needs_rtx
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_models_are_quantized(dtype):
    weight = torch.randint(-127, 127, (8, 16), dtype=torch.int8)

    def half(x):
        how = (0.1, 0, -128, 127, torch.int8)
        q = quantized_decomposed.quantize_per_tensor.default(x, *how)
        x, w = (
            quantized_decomposed.dequantize_per_tensor.default(each, *how, out_dtype=dtype)
            for each in (q, weight)
        )
        return nn.functional.linear(x, w)

    program = torch.export.export(Function(half), (torch.randn(4, 16, dtype=dtype),))
    assert not plan(program).not_delegated
    (blob,) = blobs(lower(program, builder="tensorrt_rtx"))
    assert [b.dtype for b in decode_blob(blob).info.bindings] == [str(dtype)[6:]] * 2
    # A cast behind the layer would keep the product from being one of int8.
    assert not Network(program).kinds["CAST"]


@needs_rtx
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_zero_point_costs_half_precision_no_digits(dtype):
    def round_trip(x):
        how = (0.1, 100, -128, 127, torch.int8)
        q = quantized_decomposed.quantize_per_tensor.default(x, *how)
        return quantized_decomposed.dequantize_per_tensor.default(q, *how, out_dtype=dtype)

    x = torch.linspace(-3, 2.6, 57).to(dtype)
    built = Network(torch.export.export(Function(round_trip), (x,))).built
    (found,) = evaluate(built, {built.network.get_input(0).name: x})
    torch.testing.assert_close(found, round_trip(x), rtol=0, atol=0)


class Weights(nn.Module):
    """A linear layer whose weight has a scale and a zero point for each channel."""

    def __init__(self, zero_point: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.register_buffer("weight", torch.randint(-128, 127, (8, 16), dtype=torch.int8))
        self.register_buffer("scales", torch.rand(8) + 0.1)
        self.register_buffer("zero_points", torch.full((8,), zero_point))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight = quantized_decomposed.dequantize_per_channel.default(
            self.weight, self.scales, self.zero_points, 0, -128, 127, torch.int8
        )
        return nn.functional.linear(x, weight)


@needs_rtx
@pytest.mark.parametrize(("zero_point", "layers"), [(0, 1), (5, 0)])
def test_weights_with_other_zero_points_are_float_weights(zero_point, layers):
    program = torch.export.export(Weights(zero_point), (torch.randn(4, 16),))
    assert Network(program).kinds["DEQUANTIZE"] == layers
    assert len(blobs(lower(program, builder="tensorrt_rtx"))) == 1


def int8_to_int8(x: torch.Tensor) -> torch.Tensor:
    how = (0.5, 3, -128, 127, torch.int8)
    y = torch.relu(quantized_decomposed.dequantize_per_tensor.default(x, *how)) + 1
    return quantized_decomposed.quantize_per_tensor.default(y, *how)


@pytest.mark.parametrize("builder", ["reference", pytest.param("tensorrt_rtx", marks=needs_rtx)])
def test_an_engine_can_take_and_return_int8(builder):
    x = torch.arange(-128, 128, dtype=torch.int8).reshape(4, 64)
    pte = lower(torch.export.export(Function(int8_to_int8), (x,)), builder=builder)
    (blob,) = blobs(pte)
    assert [b.dtype for b in decode_blob(blob).info.bindings] == ["int8", "int8"]
    if builder == "reference":
        check(pte, int8_to_int8, (x,), (x,), atol=0, rtol=0)


def test_what_tensorrt_has_no_layer_for_says_why():
    model = Function(lambda x: round_trip(x, 0, 0, torch.uint8))
    report = plan(torch.export.export(model, (torch.randn(2, 4),)))
    reasons = {why for _, name, why in report.not_delegated if "quantized_decomposed" in name}
    assert reasons == {"TensorRT quantizes to int8, not to torch.uint8"}


def test_dynamic_quantization_leaves_activations_to_the_cpu_and_delegates_the_rest():
    torch.manual_seed(0)
    report = plan(quantize(Mlp().eval(), (torch.randn(4, 16),), dynamic=True))
    left = {name.partition(".")[0] for _, name, _ in report.not_delegated}
    assert "quantized_decomposed::choose_qparams" in left
    for operator in ("quantize_per_tensor.tensor", "dequantize_per_tensor.tensor"):
        (reason,) = {why for _, name, why in report.not_delegated if name.endswith(f"::{operator}")}
        assert "computed at run time" in reason
    delegated = [op for partition in report.partitions for op in partition.operators]
    assert delegated.count("aten::linear.default") == 2
    assert "quantized_decomposed::dequantize_per_channel.default" in delegated


@pytest.mark.long
def test_the_weight_of_an_operator_that_stays_out_stays_out():
    torch.manual_seed(0)
    program = quantize(Residual().eval(), (torch.randn(2, 3, 16, 16),))
    partitioner = TensorRTPartitioner(builder="reference", excluded_ops=["aten.convolution"])
    report = partitioner.explain(program)
    weights = [why for _, name, why in report.not_delegated if "per_channel" in name]
    assert len(weights) == 3
    assert set(weights) == {"no operator of an engine uses its quantized or dequantized tensor"}
    assert report.partitions


def test_quantizing_alone_is_no_work_for_an_engine():
    def alone(x):
        how = (0.5, 0, -128, 127, torch.int8)
        q = quantized_decomposed.quantize_per_tensor.default(x, *how)
        return quantized_decomposed.dequantize_per_tensor.default(q, *how)

    report = plan(torch.export.export(Function(alone), (torch.randn(2, 4),)))
    assert not report.partitions
    assert {why for _, _, why in report.not_delegated} == {
        "its partition would only reshape or quantize"
    }


@pytest.mark.parametrize("excluded", sampled(["aten.linear", "linear_1"], 2))
def test_quantized_operators_that_stay_on_the_cpu_run(excluded):
    program, inputs = quantized("mlp", symmetric=False)  # As XNNPACK's quantizer does by default.
    pte, step = lower(program, excluded_ops=[excluded]), output_scale(program) * 1.01
    check(pte, program.module(), inputs, inputs, atol=step, rtol=0)
