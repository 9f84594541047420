"""What no network computes as eager does is refused, with the reason."""

from __future__ import annotations

import pytest
import torch
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
from trt_et.conversion.trial import try_as_network
from trt_et.engines import BuildOptions
from trt_et.engines.serialize import build_network
from trt_et.errors import BuilderError
from trt_et.graph.fragment import fragment_of_call

aten = torch.ops.aten
NUMBER = torch.tensor(2.0)
WEIGHT = torch.ones(20_000, 5, dtype=torch.uint8)
BYTES = torch.randint(256, (1, 3, 4, 5), dtype=torch.uint8)


# With the dynamic sizes of the first input, and a part of the reason.
LEFT_TO_THE_CPU = {
    "pooling of a dynamic number of channels": (
        lambda x: F.max_pool2d(x * 2, 2),
        (IMAGE,),
        {1: Dim("channels", min=2, max=8)},
        "Channel dim can't be dynamic",
    ),
    "means of scattered integers": (
        lambda x, i: x.scatter_reduce(1, i, x, "mean"),
        (WHOLE, WHOLE.abs() % 4),
        {},
        "scatter_reduce",
    ),
    **{
        f"bytes: {name}": (function, (BYTES,), {}, why)
        for name, (function, why) in {
            "bits": (lambda x: x & 3, "does not compute with torch.uint8"),
            "compared to what they wrap": (lambda x: x > 300, "does not compute with torch.uint8"),
            "images resized": (
                lambda x: F.interpolate(x, scale_factor=2.0, mode="bilinear"),
                "does not compute with torch.uint8",
            ),
            "a number alone": (lambda x: x // 3, "would compute with constants alone"),
            "a large table": (lambda x: WEIGHT[x.long()], "does not compute with torch.uint8"),
        }.items()
    },
    "bits of two tensors": (
        lambda x, y: [(x * 2) & y, (x * 3) | (x > 0), (y * 2) ^ x],
        (WHOLE, WHOLE + 3),
        {},
        "bit operators for booleans alone",
    ),
    "what a mask adds": (
        lambda x, mask, values: aten.index_put(x * 2, [mask], values, True) * 2,
        (X, torch.tensor([True, False, True]), randn(2, 4, 5)),
        {},
        "by a mask",
    ),
    "a selection by too large a matrix": (
        lambda x, i: torch.zeros(1 << 13, 2).index_add(0, i, x) * 2,
        (randn(1 << 12, 2), torch.arange(1 << 12)),
        {},
        "its elements would have 33554432 elements",
    ),
    "what is scattered into a number": (
        lambda x: torch.scatter_add(x * 2, 0, torch.tensor(0), x).sin(),
        (NUMBER,),
        {},
        "TensorRT",
    ),
    "windows of a number": (
        lambda x: x.unfold(0, 1, 1).sin(),
        (NUMBER,),
        {},
        "does not apply to these arguments",
    ),
    "the largest of a number": (
        lambda x: x.argmax() + 1,
        (NUMBER,),
        {},
        "fails with these arguments",
    ),
    "nine dimensions": (
        lambda x: x.reshape(3, 1, 2, 2, 1, 5, 1, 1, 1) * 2,
        (X,),
        {},
        "has 9 dimensions; TensorRT's have 8 at most",
    ),
    "groups of numbers": (
        lambda x: F.group_norm(x, 2),
        (randn(3, 4),),
        {},
        "Expected at least 3 dimensions",
    ),
}


@pytest.mark.parametrize("case", LEFT_TO_THE_CPU)
def test_it_stays_on_the_cpu_with_the_reason(case):
    function, inputs, sizes, why = LEFT_TO_THE_CPU[case]
    dynamic = ((sizes, *(None for _ in inputs[1:])),)
    program = torch.export.export(Function(function).eval(), inputs, dynamic_shapes=dynamic)
    partitioner = TensorRTPartitioner(builder="tensorrt_rtx")
    lower(program, partitioner=partitioner)
    assert why in str(partitioner.report.not_delegated)


def test_products_of_integers_stay_on_the_cpu():
    def products(x):
        return (
            *(x[0] @ x[0].T, x @ x.transpose(1, 2), torch.addmm(x[0], x[1], x[2])),
            *(F.conv1d(x, x[:2, :, :2]), F.avg_pool1d(x, 2)),
        )

    squares = WHOLE[:, :, :4]
    program = torch.export.export(Function(lambda x: [y + 1 for y in products(x * 2)]), (squares,))
    partitioner = TensorRTPartitioner(builder="tensorrt_rtx")
    assert blobs(lower(program, partitioner=partitioner))
    taken = {op for partition in partitioner.report.partitions for op in partition.operators}
    names = ("mm", "bmm", "matmul", "addmm", "convolution", "avg_pool1d", "avg_pool2d")
    assert not taken & {f"aten::{name}.default" for name in names}


FIVE = randn(1, 2, 2, 4, 8)
SIZES = {2: Dim("columns", min=4, max=64)}


@pytest.mark.parametrize(
    ("function", "inputs", "sizes", "why"),
    [
        (lambda x, y: aten.copy(x, y) * 2, (X, X[0]), {}, "of shape (4, 5); expected (3, 4, 5)"),
        (put(None, 0, 1), (X, randn(3, 3), ROWS, ROWS), SIZES, "a dimension that is not indexed"),
        (lambda x: F.interpolate(x, scale_factor=1.7), (X,), SIZES, "not an integer"),
        (lambda x: F.softplus(x, 2.0, 3.0), (X,), {}, "threshold"),
        (lambda x: F.softplus(x, 2.0, 20.0), (X,), {}, "[None]"),
        (lambda q: F.scaled_dot_product_attention(q, q, q), (FIVE,), {}, "queryDims.nbDims"),
    ],
)
def test_the_support_check_refuses_a_call(function, inputs, sizes, why):
    check = try_as_network(BuildOptions())
    dynamic = ((sizes, *(None for _ in inputs[1:])),)
    program = torch.export.export(Function(function), inputs, dynamic_shapes=dynamic)
    nodes = program.run_decompositions({}).graph.nodes
    fragments = [fragment_of_call(node, {}) for node in nodes if node.op == "call_function"]
    assert why in str([found and found.reason for found in map(check, fragments)])


def test_a_network_whose_output_has_another_shape_is_not_built():
    # Past the support check, which refuses it.
    with pytest.raises(BuilderError, match="shape"):
        build_network(request(Function(aten.copy), X, X[0]))
