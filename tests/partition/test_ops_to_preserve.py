"""Every operator that is preserved is one that both kinds of builder can build."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from executorch.exir import EdgeCompileConfig, to_edge_transform_and_lower
from torch.export import Dim
from torch.nn import functional

from tests.support.lowering import lower, reference
from tests.support.models import Function, Unary
from tests.support.programs.operator_networks import lower_and_compare
from tests.support.sampled import sampled
from tests.support.simulated_gpus import check
from trt_et.partition.ops_to_preserve import OPS_TO_PRESERVE

aten = torch.ops.aten
IMAGE = (1, 4, 8, 8)
VOLUME = (1, 4, 8, 8, 8)
SIGNAL = (1, 4, 8)


def upsample(mode: str) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda x: functional.interpolate(x, scale_factor=2.0, mode=mode)


def pad(mode: str, dims: int) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda x: functional.pad(x, (1, 1) * dims, mode=mode)


CALLS: dict[object, tuple[Callable[[torch.Tensor], torch.Tensor], tuple[int, ...]]] = {
    aten.linear.default: (lambda x: functional.linear(x, torch.ones(3, 8)), SIGNAL),
    aten.matmul.default: (lambda x: torch.matmul(x, x), IMAGE),
    aten.scaled_dot_product_attention.default: (
        lambda x: functional.scaled_dot_product_attention(x, x, x),
        IMAGE,
    ),
    aten.rms_norm.default: (lambda x: functional.rms_norm(x, x.shape[-1:]), SIGNAL),
    aten.adaptive_avg_pool1d.default: (lambda x: functional.adaptive_avg_pool1d(x, 3), SIGNAL),
    aten.adaptive_avg_pool2d.default: (lambda x: functional.adaptive_avg_pool2d(x, 3), IMAGE),
    aten.adaptive_avg_pool3d.default: (lambda x: functional.adaptive_avg_pool3d(x, 2), VOLUME),
    aten.max_pool2d.default: (lambda x: functional.max_pool2d(x, 3, 2, 1), IMAGE),
    aten.max_pool3d.default: (lambda x: functional.max_pool3d(x, 2), VOLUME),
    aten.hardsigmoid.default: (functional.hardsigmoid, SIGNAL),
    aten.hardswish.default: (functional.hardswish, SIGNAL),
    aten.silu.default: (functional.silu, SIGNAL),
    aten.mish.default: (functional.mish, SIGNAL),
    aten.log_sigmoid.default: (functional.logsigmoid, SIGNAL),
    aten.baddbmm.default: (lambda x: torch.baddbmm(x @ x.mT, x, x.mT, alpha=0.5), SIGNAL),
    aten.instance_norm.default: (functional.instance_norm, IMAGE),
    aten.softplus.default: (functional.softplus, SIGNAL),
    aten._prelu_kernel.default: (lambda x: torch.prelu(x, torch.full((4,), 0.2)), IMAGE),
    aten.embedding_bag.padding_idx: (
        lambda x: functional.embedding_bag(torch.tensor([[0, 1], [2, 3]]), x[0]),
        SIGNAL,
    ),
    aten.pad.default: (pad("constant", 2), IMAGE),
    aten.reflection_pad1d.default: (pad("reflect", 1), SIGNAL),
    aten.reflection_pad2d.default: (pad("reflect", 2), IMAGE),
    aten.reflection_pad3d.default: (pad("reflect", 3), VOLUME),
    aten.replication_pad1d.default: (pad("replicate", 1), SIGNAL),
    aten.replication_pad2d.default: (pad("replicate", 2), IMAGE),
    aten.replication_pad3d.default: (pad("replicate", 3), VOLUME),
    aten.pixel_shuffle.default: (lambda x: functional.pixel_shuffle(x, 2), IMAGE),
    aten.pixel_unshuffle.default: (lambda x: functional.pixel_unshuffle(x, 2), IMAGE),
    aten.upsample_linear1d.vec: (upsample("linear"), SIGNAL),
    aten.upsample_nearest1d.vec: (upsample("nearest"), SIGNAL),
    aten.upsample_nearest3d.vec: (upsample("nearest"), VOLUME),
    aten.upsample_trilinear3d.vec: (upsample("trilinear"), VOLUME),
    aten.upsample_bicubic2d.vec: (upsample("bicubic"), IMAGE),
    aten.grid_sampler.default: (
        lambda x: functional.grid_sample(x, x[:, :, :, :2], align_corners=False),
        IMAGE,
    ),
}


@pytest.mark.long
def test_preserved_operators_have_networks_and_reference_engines():
    def function(*inputs):
        by_shape = dict(zip((SIGNAL, IMAGE, VOLUME), inputs, strict=True))
        calls = [CALLS[operator] for operator in OPS_TO_PRESERVE]
        return [call(by_shape[shape]) for call, shape in calls]

    inputs = tuple(torch.rand(shape) for shape in (SIGNAL, IMAGE, VOLUME))
    program = torch.export.export(Function(function), inputs)
    kept, _ = reference().ops_to_not_decompose(program.run_decompositions({}))
    assert {aten.linear.default, aten.scaled_dot_product_attention.default} <= set(kept)
    _, partitioner = lower_and_compare(program, runs=True)
    (partition,) = partitioner.report.partitions
    names = {f"{operator._schema.name}.{operator._overloadname}" for operator in kept}
    assert names <= set(partition.operators)


def exported(function: Callable[[torch.Tensor], torch.Tensor]) -> torch.export.ExportedProgram:
    dynamic = ({2: Dim("length", min=4, max=30)},)
    return torch.export.export(Unary(function), (torch.randn(2, 3, 6),), dynamic_shapes=dynamic)


def padded(x):
    """Return a tensor whose length, a multiple of 8 plus 1, does not tell the length of x."""
    return functional.pad(x, (0, 9 - x.shape[2] % 8)).exp().tan().tanh()  # tan is on the CPU.


def upsampled(x):
    return functional.interpolate(padded(x), x.shape[2] * 2, mode="linear") * 2


LENGTH_ON_THE_CPU = {
    "pad": lambda x: functional.pad(padded(x), (0, x.shape[2] % 3)) * 2,
    "upsample": upsampled,
    "upsample what was cut to that length": lambda x: (
        functional.interpolate(padded(x)[:, :, : x.shape[2]], x.shape[2] * 2, mode="linear") * 2
    ),
}


@pytest.mark.parametrize("case", sampled(LENGTH_ON_THE_CPU, 3))
def test_an_operator_without_a_size_that_it_takes_does_not_end_an_export(case):
    function = LENGTH_ON_THE_CPU[case]
    pte = lower(exported(function), excluded_ops=[aten.tan])
    check(pte, function, *((torch.randn(2, 3, length),) for length in (4, 6, 8, 13, 30)))


@pytest.mark.long
def test_a_program_that_only_the_caller_s_configuration_accepts_is_lowered():
    # copysign is no core operator.
    program = exported(lambda x: torch.copysign(upsampled(x), x[:, :, :1]))
    partitioner = reference(excluded_ops=[aten.tan])
    config = EdgeCompileConfig(_core_aten_ops_exception_list=[aten.copysign.Tensor])
    to_edge_transform_and_lower(program, partitioner=[partitioner], compile_config=config)
    assert partitioner.report.partitions


def test_an_operator_takes_a_size_of_the_partition_s_input_undecomposed():
    def function(x):
        return functional.interpolate(functional.avg_pool1d(x, 2), x.shape[2:], mode="linear") + x

    (partition,) = reference().explain(exported(function)).partitions
    assert "aten::upsample_linear1d.vec" in partition.operators
