"""What no network computes as eager does is refused, with the reason."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.export import Dim
from torch.nn import functional as F

from tests.support.lowering import blobs, lower, request
from tests.support.models import Function
from tests.support.programs.operator_networks import (
    IMAGE,
    ROWS,
    WHOLE,
    X,
    put,
    randn,
)
from trt_et import TensorRTPartitioner
from trt_et.conversion.support import make_support_check
from trt_et.engines import BuildOptions
from trt_et.engines.serialize import build_network
from trt_et.errors import BuilderError
from trt_et.graph.fragment import fragment_of_call

aten = torch.ops.aten


class Transposed(nn.Module):
    def __init__(self, **options) -> None:
        super().__init__()
        self.layer = nn.ConvTranspose2d(4, 6, 3, stride=3, **options)

    def forward(self, x):
        return self.layer(x)


def reason_of_check():
    check = make_support_check(BuildOptions())

    def reason(node):
        unsupported = check(fragment_of_call(node, {}))
        return unsupported and unsupported.reason

    return reason


def test_an_output_padded_beyond_the_padding_stays_on_the_cpu():
    for model, engines in (
        (Transposed(output_padding=1), 0),
        (Transposed(padding=1, output_padding=1), 1),
    ):
        program = torch.export.export(model.eval(), (IMAGE,))
        assert len(blobs(lower(program, builder="tensorrt_rtx"))) == engines
    partitioner = TensorRTPartitioner(builder="tensorrt_rtx")
    program = torch.export.export(Transposed(output_padding=1).eval(), (IMAGE,))
    lower(program, partitioner=partitioner)
    assert "(2, 6, 27, 24); expected (2, 6, 28, 25)" in str(partitioner.report.not_delegated)


def test_pooling_a_dynamic_number_of_channels_stays_on_the_cpu():
    dynamic = (({1: Dim("channels", min=2, max=8)},),)
    model = Function(lambda x: F.max_pool2d(x * 2, 2))
    program = torch.export.export(model, (IMAGE,), dynamic_shapes=dynamic)
    partitioner = TensorRTPartitioner(builder="tensorrt_rtx")
    assert len(blobs(lower(program, partitioner=partitioner))) == 1
    assert "Channel dim can't be dynamic" in str(partitioner.report.not_delegated)


def test_means_of_scattered_integers_stay_on_the_cpu():
    program = torch.export.export(
        Function(lambda x, i: x.scatter_reduce(1, i, x, "mean")), (WHOLE, WHOLE.abs() % 4)
    )
    partitioner = TensorRTPartitioner(builder="tensorrt_rtx")
    assert not blobs(lower(program, partitioner=partitioner))
    assert "scatter_reduce" in str(partitioner.report.not_delegated)


def test_a_diagonal_of_matrices_of_dynamic_size_stays_on_the_cpu():
    dynamic = (({1: Dim("rows", min=2, max=8)},),)
    model = Function(lambda x: torch.diagonal(x * 2, 0, 1, 2) + 1)
    program = torch.export.export(model, (X,), dynamic_shapes=dynamic)
    partitioner = TensorRTPartitioner(builder="tensorrt_rtx")
    lower(program, partitioner=partitioner)
    assert "converters of aten.diagonal.default do not" in str(partitioner.report.not_delegated)


def test_what_a_mask_adds_stays_on_the_cpu():
    def added(x, mask, values):
        return aten.index_put(x * 2, [mask], values, True) * 2

    inputs = (X, torch.tensor([True, False, True]), randn(2, 4, 5))
    partitioner = TensorRTPartitioner(builder="tensorrt_rtx")
    lower(torch.export.export(Function(added), inputs), partitioner=partitioner)
    assert "by a mask" in str(partitioner.report.not_delegated)


def test_a_matrix_of_places_that_would_be_too_large_stays_on_the_cpu():
    def summed(x, positions):
        return torch.zeros(1 << 13, 2).index_add(0, positions, x) * 2

    edges = (randn(1 << 12, 2), torch.arange(1 << 12))
    program = torch.export.export(Function(summed), edges)
    partitioner = TensorRTPartitioner(builder="tensorrt_rtx")
    lower(program, partitioner=partitioner)
    assert "its elements would have 33554432 elements" in str(partitioner.report.not_delegated)


def test_booleans_are_put_in_order_by_the_cpu():
    program = torch.export.export(Function(lambda x: (x > 0).sort(1)[0]), (X,))
    partitioner = TensorRTPartitioner(builder="tensorrt_rtx")
    lower(program, partitioner=partitioner)
    assert "has type Bool" in str(partitioner.report.not_delegated)


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (
            lambda x: torch.scatter_add(x * 2, 0, torch.tensor(0), x).sin(),
            "TensorRT",
        ),
        (lambda x: x.unfold(0, 1, 1).sin(), "Error: "),
        (lambda x: x.argmax() + 1, "Error: "),
    ],
)
def test_what_cannot_be_done_to_a_number_stays_on_the_cpu(function, why):
    program = torch.export.export(Function(function), (torch.tensor(2.0),))
    partitioner = TensorRTPartitioner(builder="tensorrt_rtx")
    lower(program, partitioner=partitioner)
    assert why in str(partitioner.report.not_delegated)


def test_a_copy_that_broadcasts_is_refused():
    refusal = reason_of_check()
    program = torch.export.export(Function(lambda x, y: aten.copy(x, y) * 2), (X, X[0]))
    assert "of shape (4, 5); expected (3, 4, 5)" in str(
        [refusal(node) for node in program.graph.nodes if node.op == "call_function"]
    )


def test_a_threshold_of_softplus_is_kept():
    program = torch.export.export(Function(lambda x: F.softplus(x, 2.0, 3.0)), (X,))
    program = program.run_decompositions({})
    (node,) = (n for n in program.graph.nodes if n.target is aten.softplus.default)
    refusal = reason_of_check()
    assert "threshold" in str(refusal(node))
    node.args = (node.args[0], 2.0, 20.0)
    assert refusal(node) is None


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x[0] @ x[0].T,
        lambda x: x @ x.transpose(1, 2),
        lambda x: torch.addmm(x[0], x[1], x[2]),
        lambda x: F.conv1d(x, x[:2, :, :2]),
        lambda x: F.avg_pool1d(x, 2),
    ],
)
def test_products_of_integers_stay_on_the_cpu(function):
    program = torch.export.export(
        Function(lambda x: function(x * 2) + 1), (WHOLE[:, :, :4],)
    )  # Squares.
    partitioner = TensorRTPartitioner(builder="tensorrt_rtx")
    assert blobs(lower(program, partitioner=partitioner))
    products = ("mm", "bmm", "matmul", "addmm", "convolution", "avg_pool1d", "avg_pool2d")
    left = {operator for _, operator, _ in partitioner.report.not_delegated}
    assert left & {f"aten::{name}.default" for name in products}, left


@pytest.mark.parametrize(
    ("function", "others", "why"),
    [
        (put(None, 0, 1), (randn(3, 3), ROWS, ROWS), "follow a dimension that is not indexed"),
        (lambda x: F.interpolate(x, scale_factor=1.7), (), "not an integer"),
    ],
)
def test_what_is_right_for_known_sizes_alone_stays_on_the_cpu_for_others(function, others, why):
    dynamic = ({2: Dim("columns", min=4, max=64)}, *(None for _ in others))
    inputs = (X, *others)
    program = torch.export.export(Function(function), inputs, dynamic_shapes=(dynamic,))
    refusal = reason_of_check()
    nodes = program.run_decompositions({}).graph.nodes
    assert why in str([refusal(node) for node in nodes if node.op == "call_function"])


def test_a_network_whose_output_has_another_shape_is_not_built():
    # Past the support check, which refuses it.
    with pytest.raises(BuilderError, match="shape"):
        build_network(request(Transposed(output_padding=1), IMAGE))
