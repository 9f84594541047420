"""Normalizations that a model writes out."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim, export

from tests.support.lowering import lower
from tests.support.models import Function
from tests.support.programs.operator_networks import lower_and_compare
from tests.support.simulated_gpus import check
from trt_et import TensorRTPartitioner
from trt_et.passes.rms_norm import use_rms_norm

WIDTH = 8
OPERATORS = torch.ops.aten
NORM = OPERATORS.rms_norm.default


class Norm(nn.Module):
    """The normalization of transformers' Llama, and a product after it."""

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(WIDTH, dtype=dtype))

    def forward(self, x: Tensor) -> Tensor:
        wide = x.to(torch.float32)
        wide = wide * root_of(wide.pow(2))
        return self.weight * wide.to(x.dtype)


def root_of(squares: Tensor, dim: int | tuple[int, ...] = -1) -> Tensor:
    return torch.rsqrt(squares.mean(dim, keepdim=True) + 1e-5)


def by_products(x: Tensor) -> Tensor:
    return root_of(x * x) * x


def twice(x: Tensor) -> Tensor:
    normalized = by_products(x)
    return normalized * x + normalized


def with_mean(x: Tensor) -> Tensor:
    mean = (x * x).mean(-1, keepdim=True)
    return x * torch.rsqrt(mean + 1e-5) + mean


def with_root(x: Tensor) -> Tensor:
    root = root_of(x * x)
    return x * root + root


def after_a_write(x: Tensor) -> Tensor:
    y = x * 1
    root = root_of(y * y)
    y[0].add_(1)
    return y * root


def of_columns(x: Tensor) -> Tensor:
    y = torch.outer(x[0, 0], x[1, 0])
    return y * torch.rsqrt((y * y).mean(-1) + 1e-5)


OTHERS = {
    "mean of roots": lambda x: x * torch.rsqrt(x**2).mean(-1, keepdim=True).add(1e-5),
    "over two dimensions": lambda x: x * root_of(x * x, (-2, -1)),
    "over rows": lambda x: x * root_of(x * x, 1),
    "of another": lambda x: (x + 1) * root_of(x * x),
    "of products": lambda x: x * root_of(x * (x + 1)),
    "cubed": lambda x: x * root_of(x.abs().pow(3)),
    "scaled epsilon": lambda x: (
        x * torch.rsqrt(torch.add((x * x).mean(-1, keepdim=True), 1e-5, alpha=3))
    ),
    "half precision": lambda x: by_products(x.half()).float(),
    "the mean is used": with_mean,
    "the root is used": with_root,
    "after a write": after_a_write,
    "of columns": of_columns,
}


def exported(model: nn.Module, dtype: torch.dtype = torch.float32):
    x = torch.randn(2, 3, WIDTH, dtype=dtype)
    sizes = ({1: Dim("tokens", max=9)},)
    return export(
        model.eval(), (x,), dynamic_shapes=(sizes,) if isinstance(model, Function) else sizes
    )


def norms(program):
    return program.graph.find_nodes(op="call_function", target=NORM)


@pytest.mark.parametrize(
    ("model", "operators"),
    [
        (Function(by_products), 1),
        (Function(lambda x: by_products(x) * 2.0), 2),
        (Function(twice), 3),
        (Norm(), 1),
    ],
)
def test_a_normalization_is_one_operator_with_the_same_result(model, operators):
    program = exported(model)
    changed = use_rms_norm(program)
    changed.validate()
    assert len(norms(changed)) == 1
    calls = [
        node
        for node in changed.graph.nodes
        if node.op == "call_function" and node.target is not OPERATORS.to.dtype
    ]
    values = [node for node in calls if isinstance(node.meta.get("val"), Tensor)]
    assert len(values) == operators
    for tokens in (1, 7):
        x = torch.randn(2, tokens, WIDTH)
        torch.testing.assert_close(changed.module()(x), program.module()(x))


def test_the_result_in_half_precision_is_multiplied_as_the_model_does():
    program = exported(Norm(torch.bfloat16), torch.bfloat16)
    changed = use_rms_norm(program)
    (norm,) = norms(changed)
    assert norm.args[2] is None
    x = torch.randn(2, 5, WIDTH, dtype=torch.bfloat16)
    torch.testing.assert_close(changed.module()(x), program.module()(x), rtol=0, atol=0)


class Scaled(nn.Module):
    """A normalization, and a product that is not one of ``rms_norm``'s."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.weight = nn.Parameter(torch.randn(1 if kind == "one number" else WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        y = x * 1
        wide = y * root_of(y * y)
        if self.kind == "a write":
            y[0].add_(1)
        return self.weight * (wide.to(torch.float16) if self.kind == "rounded" else wide)


@pytest.mark.parametrize("kind", ["one number", "a write", "rounded"])
def test_other_products_with_a_weight_stay_after_the_norm(kind):
    program = exported(Scaled(kind))
    changed = use_rms_norm(program)
    (norm,) = norms(changed)
    assert norm.args[2] is None
    x = torch.randn(2, 5, WIDTH)
    torch.testing.assert_close(changed.module()(x), program.module()(x))


@pytest.mark.parametrize("name", OTHERS)
def test_other_programs_stay_as_they_are(name):
    program = exported(Function(OTHERS[name]))
    assert use_rms_norm(program) is program


def test_a_scalar_stays_as_it_is():
    program = export(Function(by_products), (torch.tensor(2.0),))
    assert use_rms_norm(program) is program


@pytest.mark.parametrize("option", ["excluded_ops", "float32_ops"])
def test_operators_that_the_caller_names_stay(option):
    options = {"precision": "float16"} if option == "float32_ops" else {}
    partitioner = TensorRTPartitioner(
        builder="reference", **options, **{option: [torch.ops.aten.rsqrt.default]}
    )
    for model in (Norm(), nn.RMSNorm(WIDTH)):
        program = partitioner.transform_for_pre_decomposition(exported(model))
        kept, _ = partitioner.ops_to_not_decompose(program)
        assert NORM not in kept
    assert not norms(partitioner.transform_for_pre_decomposition(exported(Norm())))
    lower(exported(nn.RMSNorm(WIDTH)), partitioner=partitioner)


@pytest.mark.parametrize("model", [Norm(), nn.RMSNorm(WIDTH)])
def test_the_operator_can_be_excluded_by_the_name_in_the_report(model):
    partitioner = TensorRTPartitioner(builder="reference", excluded_ops=["aten.rms_norm"])
    pte = lower(exported(model), partitioner=partitioner)
    assert not partitioner.report.partitions
    check(pte, model, (torch.randn(2, 3, WIDTH),))


@pytest.mark.parametrize("is_scaled", [True, False])
def test_a_dynamic_size_that_equals_the_width_stays_dynamic(is_scaled):
    """The second input is no weight, although its first size is the width in the example."""
    model = Function(lambda x, gate: by_products(x) * (gate if is_scaled else 1))
    batch = {0: Dim("batch", max=16)}
    gates = torch.randn(WIDTH, 3, WIDTH), torch.randn(WIDTH, 3, WIDTH)
    pte = lower(export(model, gates, dynamic_shapes=((batch, batch),)), builder="reference")
    for size in (5, WIDTH):
        check(pte, model, (torch.randn(size, 3, WIDTH), torch.randn(size, 3, WIDTH)))


def test_heads_before_a_transposition_can_be_viewed_after_it():
    """The result of ``rms_norm`` is contiguous, and the product of transposed heads is not."""

    def model(x: Tensor) -> Tensor:
        heads = x.view(2, 5, 2, WIDTH // 2).transpose(1, 2)
        return (heads * root_of(heads.pow(2))).transpose(1, 2).view(2, 5, WIDTH)

    x = torch.randn(2, 5, WIDTH)
    check(lower(export(Function(model), (x,)), builder="reference"), model, (x,))


def test_the_default_dtype_does_not_matter():
    torch.set_default_dtype(torch.float16)
    try:
        _, partitioner = lower_and_compare(exported(Norm()))
    finally:
        torch.set_default_dtype(torch.float32)
    (partition,) = partitioner.report.partitions
    assert partition.operators == ("aten::rms_norm.default",)


def test_an_engine_normalizes_in_one_operator_in_bfloat16():
    _, partitioner = lower_and_compare(exported(Norm(torch.bfloat16), torch.bfloat16), runs=True)
    (partition,) = partitioner.report.partitions
    assert "aten::rms_norm.default" in partition.operators


@pytest.mark.parametrize(
    ("norm", "dtype"),
    [
        (nn.RMSNorm(WIDTH), torch.float32),
        (nn.RMSNorm(WIDTH), torch.bfloat16),
        (nn.RMSNorm([3, WIDTH], eps=1e-3), torch.float16),
    ],
    ids=str,
)
def test_an_engine_runs_the_norm_of_torch(norm, dtype):
    x = torch.randn(4, 3, WIDTH, dtype=dtype) * 1e-3
    norm = copy.deepcopy(norm).to(dtype)
    nn.init.normal_(norm.weight)
    program = export(norm, (x,), dynamic_shapes=({0: Dim("batch", max=9)},))
    pte, _ = lower_and_compare(program, runs=True)
    bits = {} if dtype is torch.float32 else {"atol": 1e-2, "rtol": 1e-2}
    check(pte, norm, (x,), **bits)


def test_a_normalization_keeps_float32_in_a_lower_precision():
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), Norm(), nn.Linear(WIDTH, WIDTH))
    partitioner = TensorRTPartitioner(builder="reference", precision="float16")
    pte = lower(exported(model), partitioner=partitioner)
    (partition,) = partitioner.report.partitions
    kept = {operator: reason for _, operator, reason in partition.float32}
    assert kept == {"aten::rms_norm.default": "normalizations"}
    check(pte, model, (torch.randn(2, 3, WIDTH),), atol=1e-2)
