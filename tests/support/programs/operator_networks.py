"""Inputs of operators, and what is asked of the network that TensorRT is given of one.

Networks are evaluated on the CPU (tests/support/network_evaluator); no engine runs.
"""

from __future__ import annotations

import torch

from tests.support.lowering import blobs, lower, request
from tests.support.models import Function
from tests.support.network_evaluator.comparison import ComparingBuilder, Verdict, compare
from trt_et import TensorRTPartitioner

aten = torch.ops.aten
G = torch.Generator().manual_seed(0)


def randn(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=G)


X, LINE, IMAGE = randn(3, 4, 5), randn(7), randn(2, 4, 9, 8)
WHOLE = torch.randint(-9, 9, (3, 4, 5), generator=G)
SMALL, BY = WHOLE.int(), torch.randint(1, 9, (3, 4, 5), generator=G)
CLOSE = (1 << 26) + torch.randperm(60, generator=G).reshape(3, 4, 5).int()
QUERIES, HEADS = randn(2, 4, 3, 8), randn(2, 4, 6, 8)
MASK = torch.ones(2, 1, 3, 6, dtype=torch.bool).tril()
MASK[1, :, :2] = False  # Padded on the left.
BIAS = torch.zeros(2, 1, 3, 6).masked_fill(~MASK, -torch.inf)
ROWS = torch.tensor([2, 0, 1])
KEYS = randn(3, 6, 8)


def put(*indices):
    return lambda x, values, *given: aten.index_put(
        x, [given[i] if isinstance(i, int) else None for i in indices], values
    )


def assert_network_equals_eager(function, inputs) -> None:
    verdict = compare(request(Function(function), *inputs), *inputs)
    assert verdict.outcome == "equal", verdict


def lower_and_compare(
    program: torch.export.ExportedProgram, *, runs: bool = False
) -> tuple[bytes, TensorRTPartitioner]:
    """Lower a program, and hold that each partition's network computes what the partition does.

    With ``runs`` the result runs on a simulated GPU.
    """
    verdicts: list[Verdict] = []
    partitioner = TensorRTPartitioner(builder=ComparingBuilder(verdicts, runs=runs))
    pte = lower(program, partitioner=partitioner)
    assert {verdict.outcome for verdict in verdicts} == {"equal"}, verdicts
    return pte, partitioner


def assert_one_engine(function, inputs) -> None:
    program = torch.export.export(Function(function), inputs)
    assert len(blobs(lower(program, builder="tensorrt_rtx"))) == 1
