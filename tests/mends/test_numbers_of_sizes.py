"""Numbers from dynamic sizes; those beside float32 are in ``conversion/test_equal_at_any_size``."""

from __future__ import annotations

import logging

import torch
from executorch.exir import EdgeCompileConfig
from torch.export import Dim

from tests.support.lowering import finish, lower, reference
from tests.support.models import Function
from tests.support.simulated_gpus import check
from trt_et.mends.numbers_of_sizes import keep_numbers_of_sizes_in_tensors


def test_a_number_beside_float64_has_its_precision():
    def root(x: torch.Tensor) -> torch.Tensor:
        return x.double() * x.shape[0] ** 0.5

    x = torch.randn(5, 3)
    program = torch.export.export(Function(root), (x,), dynamic_shapes=(({0: Dim("n", max=9)},),))
    check(lower(program), root, (x,), (x[:3],), atol=1e-15, rtol=1e-15)


def test_layers_share_the_tensor_of_a_number():
    def scaled(x: torch.Tensor) -> torch.Tensor:
        return (x / x.shape[0] ** 0.5).relu() / x.shape[0] ** 0.5

    size = {0: Dim("n", max=9)}
    program = torch.export.export(Function(scaled), (torch.randn(5, 3),), dynamic_shapes=((size,),))
    graph = keep_numbers_of_sizes_in_tensors(program).graph
    (power,) = graph.find_nodes(op="call_function", target=torch.ops.aten.pow.Tensor_Tensor)
    assert len(power.users) == 2


def test_a_size_that_is_the_larger_of_two_is_reported_and_runs_without_executorchs_check(caplog):
    def padded(x: torch.Tensor) -> torch.Tensor:
        return x.sum() + torch.zeros(max(x.shape[0], 4))

    x = torch.randn(5, 3)
    program = torch.export.export(Function(padded), (x,), dynamic_shapes=(({0: Dim("n", max=9)},),))
    unchecked = EdgeCompileConfig(_check_ir_validity=False)
    with caplog.at_level(logging.WARNING):
        manager = finish(program, reference(), compile_config=unchecked)
    assert "sym_max is the larger or smaller of two sizes" in caplog.text
    check(bytes(manager.buffer), padded, (x,), (x[:2],), (torch.randn(9, 3),))
