"""Nothing assumes a value of a symbolic size: the caller's program stays dynamic."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.export import Dim
from torch.nn import functional as F

from tests.support.models import Function
from tests.support.programs.operator_networks import lower_and_compare
from trt_et import TensorRTPartitioner
from trt_et.conversion.decompose import decompose, decomposed_operators

VARIANCES = {
    "variance": lambda x: (x * 2).var(0) + 1,
    "variance of all": lambda x: (x * 2).var() + 1,
    "uncorrected variance": lambda x: (x * 2).var((0, 1), correction=0) + 1,
    "variance of as many as its correction": lambda x: (x * 2).var(1, correction=3) + 1,
    "standard deviation": lambda x: x.std(0, keepdim=True) + x,
    "standard deviation and mean": lambda x: torch.std_mean(x * 2, 0)[0] + 1,
    "variance of half precision": lambda x: x.half().var(0).float() + 1,
}
LAYER = nn.Conv1d(3, 4, 1)
OTHERS = {
    "group norm": lambda x: F.group_norm((x * 2)[:, :, None], 3),
    "a scatter": lambda x: x.scatter_add(0, (x > 0).long(), x * 2),
    "a diagonal": lambda x: torch.diagonal(x * 2) + 1,
    "written rows": lambda x: x.slice_scatter(x[:, 1:] * 2, 1, 1),
    "embedding bags": lambda x: F.embedding_bag((x > 0).long(), torch.ones(2, 3)) * 2,
    "the largest": lambda x: (x * 2).max(0)[0] + x.min(0)[1],
    "matrices": lambda x: (x @ x.T).tril(1).softmax(-1),
    "a convolution": lambda x: LAYER(x.T[None] * 2),
}


def dynamic(function):
    sizes = (({0: Dim("n", min=2, max=500)},),)
    return torch.export.export(Function(function), (torch.randn(5, 3),), dynamic_shapes=sizes)


def symbols(program):
    values = [node.meta["val"] for node in program.graph.nodes if "val" in node.meta]
    environment = next(v.fake_mode.shape_env for v in values if isinstance(v, torch.Tensor))
    return (
        dict(environment.replacements),
        {
            s: known
            for s, known in environment.var_to_range.items()
            if s in environment.var_to_sources
        },
        [str(guard.expr) for guard in environment.guards],
    )


@pytest.mark.parametrize("case", [*VARIANCES, *OTHERS])
def test_explain_leaves_the_program_dynamic(case):
    program = dynamic((VARIANCES | OTHERS)[case])
    before = symbols(program)
    TensorRTPartitioner(builder="reference").explain(program)
    assert symbols(program) == before


@pytest.mark.parametrize("case", VARIANCES)
def test_the_network_equals_eager_at_every_size(case):
    lower_and_compare(dynamic(VARIANCES[case]))


def test_no_decomposition_of_the_registry_can_ask_for_the_value_of_a_size():
    program = dynamic(lambda x: x.relu())
    node = next(node for node in program.graph.nodes if node.op == "call_function")
    before = symbols(program)
    asked = {op: lambda x, *_: x * int(x.shape[0]) for op in decomposed_operators()}
    asked[node.target] = lambda x: x * int(x.shape[0])
    assert decompose(node, asked) is None
    for op in asked:
        node.target = op
        decompose(node, asked)
    assert symbols(program) == before
