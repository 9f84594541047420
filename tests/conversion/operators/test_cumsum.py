"""Cumulative sums: delegated, built, and the same as eager's."""

from __future__ import annotations

import pytest
import tensorrt_rtx as trt
import torch
from executorch.runtime import Runtime
from torch import nn
from torch.export import Dim

from tests.support.lowering import blobs, lower, request
from tests.support.programs.operator_networks import lower_and_compare
from tests.support.simulated_gpus import load_runtime
from trt_et.engines import serialize as engines

FLOATS, NUMBERS = torch.randn(3, 5), torch.randint(-9, 9, (3, 5))


class Sum(nn.Module):
    def __init__(self, dim: int, dtype: torch.dtype | None = None) -> None:
        super().__init__()
        self.dim, self.dtype = dim, dtype

    def forward(self, x):
        return torch.cumsum(x, self.dim, dtype=self.dtype)


CASES = {
    "float32": (Sum(1), FLOATS),
    "a negative dimension": (Sum(-2), torch.randn(3, 5, 2)),
    "int64": (Sum(0), NUMBERS),
    "int32 to int64": (Sum(0), NUMBERS.int()),
    "bool to int64": (Sum(1), NUMBERS > 0),
    "int64 to float32": (Sum(1, torch.float32), NUMBERS),
    "float16": (Sum(1), FLOATS.half()),
    "bfloat16": (Sum(1), FLOATS.bfloat16()),
    "one dimension": (Sum(0), torch.randn(7)),
}


@pytest.mark.parametrize("case", CASES)
def test_a_sum_is_one_engine_and_equals_eager(case):
    model, x = CASES[case]
    load_runtime()
    pte, _ = lower_and_compare(torch.export.export(model, (x,)), runs=True)
    assert len(blobs(pte)) == 1
    (have,) = Runtime.get().load_program(pte).load_method("forward").execute([x])
    # The CPU's kernel adds half precision up in half precision.
    precision = {torch.float16: 1e-2, torch.bfloat16: 1e-1}.get(x.dtype, 1e-6)
    torch.testing.assert_close(have, model(x), atol=precision, rtol=precision)


def test_the_layer_has_the_axis_and_the_dtype_of_the_sum():
    def layers(model: nn.Module, x: torch.Tensor) -> list[tuple[int, str]]:
        built = engines.build_network(request(model, x))  # Holds the memory of its constants.
        net = built.network
        every = [net.get_layer(i) for i in range(net.num_layers)]
        constants = {
            layer.get_output(0).name: layer
            for layer in every
            if layer.type == trt.LayerType.CONSTANT
        }
        found = []
        for layer in every:
            if layer.type == trt.LayerType.CUMULATIVE:
                axis = constants[layer.get_input(1).name]
                axis.__class__ = trt.IConstantLayer
                dtype = str(layer.get_output(0).dtype).rpartition(".")[2]
                found.append((int(axis.weights.item()), dtype))
        return found

    assert layers(Sum(-2), torch.randn(3, 5, 2)) == [(1, "FLOAT")]
    assert layers(Sum(1), NUMBERS > 0) == [(1, "INT64")]
    assert layers(Sum(0), FLOATS.half()) == [(0, "FLOAT")]
    assert layers(Sum(0), torch.tensor(2.0)) == []


def test_a_sum_over_a_dynamic_dimension_is_built():
    dynamic = ({0: Dim("rows", max=8), 1: Dim("columns", min=2, max=64)},)
    program = torch.export.export(Sum(1), (FLOATS,), dynamic_shapes=dynamic)
    assert len(blobs(lower(program, builder="tensorrt_rtx"))) == 1
