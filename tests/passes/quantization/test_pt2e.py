"""Quantized programs become quantized engines."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tests.support.lowering import blobs, lower
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


def case_of(name: str, symmetric: bool, per_channel: bool) -> str:
    return f"{name}-{symmetric}-{per_channel}"


def output_scale(program: torch.export.ExportedProgram) -> float:
    scales = [
        node.args[1]
        for node in program.graph.nodes
        if node.target is quantized_decomposed.dequantize_per_tensor.default
    ]
    return float(max(scales))


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda v: case_of(*v))
def test_it_runs_like_eager_to_one_quantization_step(variant):
    name, symmetric, per_channel = variant
    program, inputs = quantized(name, symmetric=symmetric, per_channel=per_channel)
    step = output_scale(program) * 1.01
    check(lower(program), program.module(), inputs, inputs, atol=step, rtol=0)


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda v: case_of(*v))
def test_it_is_one_partition(variant):
    name, symmetric, per_channel = variant
    program, _ = quantized(name, symmetric=symmetric, per_channel=per_channel)
    report = plan(program)
    assert not report.not_delegated
    (partition,) = report.partitions
    assert "quantized_decomposed::quantize_per_tensor.default" in partition.operators
    assert all(tensor.dtype is torch.float32 for tensor in partition.inputs + partition.outputs)


@needs_rtx
@pytest.mark.parametrize("variant", sampled(VARIANTS, 3), ids=lambda v: case_of(*v))
def test_tensorrt_rtx_builds_it(variant):
    name, symmetric, per_channel = variant
    program, _ = quantized(name, symmetric=symmetric, per_channel=per_channel)
    (blob,) = blobs(lower(program, builder="tensorrt_rtx"))
    assert decode_blob(blob).info.builder == "tensorrt_rtx"


@needs_rtx
def test_each_operator_is_one_layer_where_the_zero_point_is_0():
    program, _ = quantized("mlp")
    kinds = Network(program).kinds
    assert (kinds["QUANTIZE"], kinds["DEQUANTIZE"]) == (3, 5)
    plain = torch.export.export(Mlp().eval(), (torch.randn(4, 16),))
    assert kinds["ELEMENTWISE"] == Network(plain).kinds["ELEMENTWISE"]


class RoundTrip(nn.Module):
    """Quantizes its input and dequantizes it again."""

    def __init__(self, zero_point: int, low: int = -128, dtype: torch.dtype = torch.int8) -> None:
        super().__init__()
        self.how = (zero_point, low, 127 if dtype is torch.int8 else 255, dtype)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q = quantized_decomposed.quantize_per_tensor.default(x, 0.25, *self.how)
        return quantized_decomposed.dequantize_per_tensor.default(q, 0.25, *self.how) * 2


@needs_rtx
def test_another_zero_point_is_a_shift_around_the_layers():
    found = Network(torch.export.export(RoundTrip(-3), (torch.randn(2, 4),)))
    assert (found.kinds["QUANTIZE"], found.kinds["DEQUANTIZE"]) == (1, 1)
    shifts = {name: weights.item() for name, weights in found.constants.items()}
    assert [shift for name, shift in shifts.items() if "zero_point" in name] == [-3]
    assert [shift for name, shift in shifts.items() if "shift" in name] == [-0.75]


@needs_rtx
@pytest.mark.parametrize("zero_point", [0, 1, 2, -3, 127])
@pytest.mark.parametrize("low", [-128, -127])
def test_numbers_between_two_steps_are_rounded_as_torch_rounds_them(zero_point, low):
    halves = torch.arange(-400, 400) * 0.125
    assert_network_equals_eager(RoundTrip(zero_point, low), (halves,))


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
def test_a_narrower_range_is_clamped_before_the_layer():
    found = Network(torch.export.export(RoundTrip(0, low=-127), (torch.randn(2, 4),)))
    assert [w.item() for name, w in found.constants.items() if "_low" in name] == [-127 * 0.25]


@needs_rtx
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_models_are_quantized(dtype):
    class Half(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            weight = torch.randint(-127, 127, (8, 16), dtype=torch.int8)
            self.register_buffer("weight", weight)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            how = (0.1, 0, -128, 127, torch.int8)
            q = quantized_decomposed.quantize_per_tensor.default(x, *how)
            x = quantized_decomposed.dequantize_per_tensor.default(q, *how, out_dtype=dtype)
            w = quantized_decomposed.dequantize_per_tensor.default(
                self.weight, *how, out_dtype=dtype
            )
            return nn.functional.linear(x, w)

    program = torch.export.export(Half(), (torch.randn(4, 16, dtype=dtype),))
    assert not plan(program).not_delegated
    (blob,) = blobs(lower(program, builder="tensorrt_rtx"))
    assert [b.dtype for b in decode_blob(blob).info.bindings] == [str(dtype)[6:]] * 2
    # A cast behind the layer would keep the product from being one of int8.
    assert not Network(program).kinds["CAST"]


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


class Int8(nn.Module):
    """Takes and returns int8 tensors."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        how = (0.5, 3, -128, 127, torch.int8)
        y = torch.relu(quantized_decomposed.dequantize_per_tensor.default(x, *how)) + 1
        return quantized_decomposed.quantize_per_tensor.default(y, *how)


@pytest.mark.parametrize("builder", ["reference", pytest.param("tensorrt_rtx", marks=needs_rtx)])
def test_an_engine_can_take_and_return_int8(builder):
    x = torch.arange(-128, 128, dtype=torch.int8).reshape(4, 64)
    pte = lower(torch.export.export(Int8(), (x,)), builder=builder)
    (blob,) = blobs(pte)
    assert [b.dtype for b in decode_blob(blob).info.bindings] == ["int8", "int8"]
    if builder == "reference":
        check(pte, Int8(), (x,), (x,), atol=0, rtol=0)


def test_what_tensorrt_has_no_layer_for_says_why():
    report = plan(torch.export.export(RoundTrip(0, 0, torch.uint8), (torch.randn(2, 4),)))
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
    class Alone(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            how = (0.5, 0, -128, 127, torch.int8)
            q = quantized_decomposed.quantize_per_tensor.default(x, *how)
            return quantized_decomposed.dequantize_per_tensor.default(q, *how)

    report = plan(torch.export.export(Alone(), (torch.randn(2, 4),)))
    assert not report.partitions
    assert {why for _, _, why in report.not_delegated} == {
        "its partition would only reshape or quantize"
    }


@pytest.mark.parametrize("excluded", ["aten.linear", "linear_1"])
def test_quantized_operators_that_stay_on_the_cpu_run(excluded):
    program, inputs = quantized("mlp", symmetric=False)  # As XNNPACK's quantizer does by default.
    pte, step = lower(program, excluded_ops=[excluded]), output_scale(program) * 1.01
    check(pte, program.module(), inputs, inputs, atol=step, rtol=0)
