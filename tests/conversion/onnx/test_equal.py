"""ONNX payloads compute what eager does, and the parser of TensorRT-RTX takes them.

Onnxruntime runs them on the CPU, an engine that nobody here wrote; ONNX's own reference runs those
in bfloat16. ``make onnx`` takes all cases of the networks' tests, CI some.
"""

from __future__ import annotations

import math

import pytest
import torch
from executorch.exir import to_edge_transform_and_lower
from torch.export import Dim, ExportedProgram
from torch.nn import functional as F

from tests.conversion.test_dynamic_indices import CASES as INDICES
from tests.conversion.test_dynamic_indices import dynamic
from tests.conversion.test_equal import CASES
from tests.conversion.test_equal_at_any_size import OF_ANY_SIZE, of_any_size
from tests.support.models import Function
from tests.support.network_evaluator.comparison import Verdict
from tests.support.onnx.comparison import ComparingOnnxBuilder
from tests.support.programs.operator_networks import randn
from tests.support.sampled import chosen, sampled
from tests.support.zoo.lowered import MODELS, make
from trt_et import TensorRTPartitioner

OWN_CASES = {
    "clamped to infinity": (
        lambda x: [
            x.clamp(-math.inf, 1),
            x.clamp(0, math.inf),
            x.clamp(math.inf),
            x.clamp(-1, -math.inf),
        ],
        (torch.tensor([math.nan, math.inf, -math.inf, 0.5]),),
    ),
    "sampled at a grid": (
        lambda x, grid: [
            F.grid_sample(x, grid, mode, padding, align)
            for mode in ("bilinear", "bicubic")  # The nearest of two at a distance of 0.5 is free.
            for padding, align in (("zeros", True), ("border", False), ("reflection", False))
        ],
        (randn(2, 3, 5, 4), randn(2, 2, 3, 2) / 2),
    ),
    "a line resized, mirrored and cut off": (
        lambda x: [F.interpolate(x, 7, mode="linear") * 2, F.pad(x, (-1, 2), mode="reflect") * 2],
        (randn(2, 3, 5),),
    ),
    "a diagonal replaced": (
        lambda x: x.sin().diagonal_scatter(x[0] * 2) * 2,
        (randn(4, 4),),
    ),
    "the place of the largest": (
        lambda x: [x.argmax() + x[0].argmin(0, True), x[0].argmax(0) * 2],
        (randn(3, 7),),
    ),
    "means of images": (
        lambda x: [
            x.mean((2, 3)),
            x.mean((-1, -2), keepdim=True),
            x.mean((1, 2)),
            x.mean((2, 3), dtype=torch.float16) * 2,
            F.adaptive_avg_pool2d(x, 1),
        ],
        (randn(2, 3, 5, 4),),
    ),
    "copied to another shape": (lambda x: x[:, :1].sin().copy_(x[:, 1:2]) * 2, (randn(3, 4),)),
}
ON_CPU = ("bfloat16 deconvolved",)  # TensorRT-RTX builds no engine of it.
# It sorts numbers that are equal among the drawn ones; their order is free.
TIES = ("sampler",)
IN_CI = (
    *("angles", "booleans", "a choice between dtypes", "bfloat16 convolved"),
    *("queries that see nothing", "resized by factors"),
)
SIZES_IN_CI = (
    *("clipped by a mask", "rows scattered", "numbers downwards", "flattened in the middle"),
)
INDICES_IN_CI = ("written in place",)


def judged(program: ExportedProgram) -> tuple[list[Verdict], TensorRTPartitioner]:
    verdicts: list[Verdict] = []
    partitioner = TensorRTPartitioner(builder=ComparingOnnxBuilder(verdicts))
    with torch.no_grad():
        to_edge_transform_and_lower(program, partitioner=[partitioner])
    return verdicts, partitioner


def assert_equal(program: ExportedProgram) -> None:
    verdicts, partitioner = judged(program)
    assert {verdict.outcome for verdict in verdicts} == {"equal"}, (verdicts, partitioner.report)


@pytest.mark.parametrize(
    "case", [*OWN_CASES, *chosen((case for case in CASES if case not in ON_CPU), *IN_CI)]
)
def test_a_payload_equals_eager(case):
    function, inputs = (OWN_CASES | CASES)[case]
    assert_equal(torch.export.export(Function(function), inputs))


@pytest.mark.parametrize("case", chosen(OF_ANY_SIZE, *SIZES_IN_CI))
def test_one_payload_equals_eager_at_every_size(case):
    assert_equal(of_any_size(OF_ANY_SIZE[case]))


def test_quotients_of_sizes_are_rounded_down():
    def function(x):
        return torch.arange((x.shape[0] - 9) % 4, 9) * x.sum() + (x.shape[0] - 20) // 3

    sizes = {0: Dim("rows", min=1, max=17)}
    assert_equal(
        torch.export.export(Function(function), (randn(5, 3),), dynamic_shapes=((sizes,),))
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("options", sampled([{"correction": 0}, {}, {"correction": 3}]))
def test_a_variance_over_a_dynamic_size_is_in_the_payload(options, dtype):
    sizes = {1: Dim("rows", min=1, max=17)}
    program = torch.export.export(
        Function(lambda x: [x.var(1, **options), x.std((1, 2), **options) * 2]),
        (randn(2, 5, 3).to(dtype),),
        dynamic_shapes=((sizes,),),
    )
    verdicts, partitioner = judged(program)
    assert [verdict.outcome for verdict in verdicts] == ["equal"], verdicts
    assert not partitioner.report.not_delegated


@pytest.mark.parametrize("case", chosen(INDICES, *INDICES_IN_CI))
def test_indices_count_as_torch_counts_them(case):
    assert_equal(dynamic(*INDICES[case]))


@pytest.mark.parametrize("name", chosen((n for n in MODELS if n not in TIES), "conv3d"))
def test_a_model_of_the_zoo_is_as_few_payloads_as_engines(name):
    case = make(name)
    program = torch.export.export(
        case.model, case.inputs, dynamic_shapes=case.dynamic, strict=case.strict
    )
    verdicts, partitioner = judged(program)
    assert {verdict.outcome for verdict in verdicts} == {"equal"}, verdicts
    assert len(verdicts) <= case.partitions, str(partitioner.report)
    left = {
        operator for _, operator, reason in partitioner.report.not_delegated if "size" not in reason
    }
    assert left <= set(case.left), str(partitioner.report)
