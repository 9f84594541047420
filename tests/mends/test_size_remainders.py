"""Remainders of sizes have the divisor's sign, on the CPU and in a network, as in Python."""

from __future__ import annotations

import pytest
import torch
from executorch.exir import EdgeCompileConfig, to_edge_transform_and_lower
from torch.export import Dim
from torch.nn import functional as F

from tests.support.lowering import blobs, lower, reference
from tests.support.models import Function
from tests.support.programs.operator_networks import lower_and_compare
from tests.support.sampled import sampled
from tests.support.simulated_gpus import check, load_method
from trt_et.mends.size_remainders import write_out_size_remainders


def in_branches(x):
    return torch.cond(
        x.sum() > 0,
        lambda x: x * 2 * (-x.shape[0] % 5),
        lambda x: x.sin() * ((x.shape[0] - 9) % 4),
        (x,),
    )


CASES = {
    "padded": lambda x: [
        F.pad(x * 2, (0, 0, 0, -x.shape[0] % 8)) + 1,
        F.pad(x * 2, (0, 0, 0, (x.shape[0] - 9) % 4)) + 1,
    ],
    "remainders": lambda x: [
        x * (-x.shape[0] % 5),
        x * ((x.shape[0] - 9) % 4),
        x * (x.shape[0] % -4),
        x * ((3 - x.shape[0]) % x.shape[0]),
        x * (5 % -x.shape[0]),
    ],
    "quotients": lambda x: x * (-x.shape[0] // 4) + x.shape[0] // -3,
    "rolled": lambda x: [
        (x * 2).roll(4) + 1,
        (x * 2).roll(7, 0) + 1,
        (x * 2).roll((9, -8), (0, 1)) + 1,
        (x * 2).roll(-(x.shape[0] // 2), 0) + 1,
    ],
    "in branches": in_branches,
}


def dynamic(function):
    sizes = (({0: Dim("n", min=1, max=20)},),)
    return torch.export.export(Function(function), (torch.ones(5, 3),), dynamic_shapes=sizes)


@pytest.mark.parametrize("case", sampled(CASES, 2))
def test_every_size_gives_what_python_gives(case):
    # Networks of branches are not drawn inputs for.
    program = dynamic(CASES[case])
    pte = lower(program) if case == "in branches" else lower_and_compare(program, runs=True)[0]
    check(pte, CASES[case], *((torch.randn(size, 3),) for size in (1, 2, 5, 9, 13)))


def test_a_remainder_that_the_cpu_computes_is_pythons():
    pte = lower(dynamic(lambda x: (x * 2, (x.shape[0] - 9) % 4)))
    method = load_method(pte)
    for size in (2, 5, 9, 12):
        assert method.execute([torch.ones(size, 3)])[1] == (size - 9) % 4


@pytest.mark.parametrize("function", [lambda x: x * (x.shape[0] % 4), lambda x: x.roll(1, 1)])
def test_a_program_without_negative_sizes_stays_as_it_is(function):
    program = torch.export.export(Function(function), (torch.ones(5, 3),))
    assert write_out_size_remainders(program) is program


def test_a_remainder_of_a_float_is_lowered_as_without_a_partitioner():
    program = dynamic(lambda x: x * ((x.shape[0] * 0.5) % 0.7))
    config = EdgeCompileConfig(_check_ir_validity=False)
    manager = to_edge_transform_and_lower(program, None, [reference()], compile_config=config)
    assert blobs(bytes(manager.to_executorch().buffer))
