"""Engines that compute in float16 or bfloat16: what does, what does not, and with what result."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from executorch.exir import to_edge_transform_and_lower
from torch import nn
from torch.export import Dim
from torch.nn import functional

from tests.support.lowering import blobs, export, lower, reference
from tests.support.models import Function, State, make
from tests.support.network_evaluator.comparison import compare
from tests.support.programs.kv_cache_models import SHAPE, Cache, Recorder, recorded
from tests.support.programs.quantized_models import quantized
from tests.support.programs.quantized_networks import needs_rtx
from tests.support.sampled import chosen
from tests.support.simulated_gpus import check
from trt_et import TensorRTPartitioner
from trt_et.engine_info import decode_blob
from trt_et.engine_program.program import unlift
from trt_et.engines import BuildRequest
from trt_et.precision.program import PRECISION_DTYPES

ATEN = torch.ops.aten
BATCH_NORM = ATEN._native_batch_norm_legit_no_training.default
HALF, FLOAT = torch.float16, torch.float32


@pytest.fixture(autouse=True)
def same_numbers_each_time() -> None:
    torch.manual_seed(0)


def asked(model: nn.Module, *inputs: torch.Tensor, **options: Any) -> BuildRequest:
    """What a builder is asked for; the model becomes one engine."""
    options.setdefault("precision", "float16")
    (found,) = recorded(model, inputs, **options)[0]
    return found


def results(found: BuildRequest) -> list[tuple[Any, torch.dtype]]:
    """The operators of a partition, with the dtypes of their results."""
    values = [
        (node.target, node.meta["val"])
        for node in found.program.exported.graph.nodes
        if node.op == "call_function"
    ]
    return [
        (op, (v[0] if isinstance(v, tuple | list) else v).dtype)
        for op, v in values
        if isinstance(v, torch.Tensor | tuple | list)
    ]


def dtypes(found: BuildRequest, operator: Any) -> set[torch.dtype]:
    return {dtype for op, dtype in results(found) if op is operator}


def evaluated(found: BuildRequest, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The results of a partition's program; the inputs are the model's, in its order."""
    names = [found.program.names[binding.name] for binding in found.program.inputs]
    ordered = [inputs[sorted(names).index(name)].clone() for name in names]
    with torch.no_grad():
        return unlift(found.program.exported)(*ordered)


def error(have: torch.Tensor, want: torch.Tensor) -> float:
    """The largest error, relative to the largest value; infinite if a value is not finite."""
    if not torch.isfinite(have).all():
        return float("inf")
    return float((have.double() - want.double()).abs().max() / want.abs().max())


def constants(found: BuildRequest) -> list[torch.dtype]:
    return [value.dtype for value in found.program.constants.values()]


@pytest.mark.parametrize(
    ("name", "precision"),
    [
        ("mlp", "float16"),
        ("cnn", "float16"),
        pytest.param("cnn", "bfloat16", marks=pytest.mark.long),
        pytest.param("vit", "bfloat16", marks=pytest.mark.long),
    ],
)
def test_the_result_is_as_near_to_float32_as_the_model_in_that_dtype(name, precision):
    model, inputs = make(name)
    dtype = PRECISION_DTYPES[precision]
    found = asked(copy.deepcopy(model), *inputs, precision=precision)
    with torch.no_grad():
        want = model(*inputs)
        plain = copy.deepcopy(model).to(dtype)(*(x.to(dtype) for x in inputs))
    (have,) = evaluated(found, *inputs)
    assert have.dtype == want.dtype == FLOAT
    assert error(have, want) <= max(error(plain, want), torch.finfo(dtype).eps)
    assert dtypes(found, ATEN.linear.default) == {dtype}


@needs_rtx
@pytest.mark.parametrize("name", chosen(["mlp", "cnn", "vit"], "mlp"))
def test_the_network_is_what_the_program_computes(name):
    model, inputs = make(name)
    assert compare(asked(model, *inputs), *inputs).outcome == "equal"


@needs_rtx
def test_tensorrt_rtx_keeps_half_of_the_bytes():
    model = nn.Sequential(nn.Conv2d(64, 256, 3), nn.BatchNorm2d(256), nn.ReLU(), nn.Flatten())
    model = nn.Sequential(model, nn.Linear(256 * 36, 512), nn.LayerNorm(512)).eval()
    program = torch.export.export(model, (torch.randn(1, 64, 8, 8),))
    sizes = {}
    for precision in (None, "float16", "bfloat16"):
        (blob,) = blobs(lower(program, builder="tensorrt_rtx", precision=precision))
        decoded = decode_blob(blob)
        sizes[precision] = len(decoded.engine)
        assert decoded.info.precision == (precision or "")
        assert {binding.dtype for binding in decoded.info.bindings} == {"float32"}
    assert max(sizes["float16"], sizes["bfloat16"]) <= 0.52 * sizes[None]


@pytest.mark.long
def test_it_runs_in_the_stock_runtime():
    model, inputs = make("vit")
    check(lower(export("vit"), precision="float16"), model, inputs, atol=5e-3, rtol=0)


def test_normalizations_reductions_and_softmax_keep_float32():
    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.norm, self.last = nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, 8)

        def forward(self, x):
            y = self.norm(self.first(x)).softmax(-1)
            return self.last(y) / self.last(x).exp().sum()

    found = asked(Mixed(), torch.randn(4, 8))
    products_and_casts = (ATEN.linear.default, ATEN._to_copy.default)
    assert {dtype for op, dtype in results(found) if op not in products_and_casts} == {FLOAT}
    assert dtypes(found, ATEN.linear.default) == {HALF}


def test_weights_are_kept_once_in_the_precision_that_uses_them():
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(16, 8)

        def forward(self, tokens):
            return functional.linear(self.table(tokens), self.table.weight)

    assert constants(asked(Tied(), torch.tensor([[1, 2]]))) == [HALF]

    class AlsoWide(Tied):
        def forward(self, tokens):
            return super().forward(tokens) + (self.table.weight + tokens[0, 0]).exp().sum()

    both = constants(asked(AlsoWide(), torch.tensor([[1, 2]])))
    assert len(both) == 2
    assert set(both) == {HALF, FLOAT}


@pytest.mark.parametrize("layer", [nn.Conv2d, nn.ConvTranspose2d])
def test_batch_norms_are_folded_before_their_numbers_leave_the_range(layer):
    model = nn.Sequential(layer(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.BatchNorm2d(4)).eval()
    for norm in (model[1], model[3]):
        norm.running_var.fill_(1e6)
        norm.running_mean.uniform_(-1, 1)
    x = torch.randn(1, 3, 8, 8) * 1e3
    found = asked(copy.deepcopy(model), x)
    assert not dtypes(found, BATCH_NORM)
    assert dtypes(found, ATEN.convolution.default) == {HALF}
    assert error(evaluated(found, x)[0], model(x)) < 2e-3
    assert error(copy.deepcopy(model).half()(x.half()), model(x)) > 2e-3


LOWEST = torch.finfo(torch.float32).min


def fused_attention(q, mask):
    return functional.scaled_dot_product_attention(q, q, q, mask)


def attention(q, mask):
    return (q @ q.transpose(-1, -2) + mask).softmax(-1) @ q


def attention_to_seen(q, seen):
    return attention(q, (1.0 - seen) * LOWEST)


@pytest.mark.parametrize(
    ("function", "hidden"),
    [
        (fused_attention, LOWEST),
        (fused_attention, -torch.inf),
        (attention, LOWEST),
        (attention_to_seen, None),
    ],
)
def test_masks_make_no_nan(function, hidden):
    q, seen = torch.randn(1, 2, 4, 8), torch.ones(4, 4).tril()
    if hidden != -torch.inf:
        seen[0] = 0  # A padded query that sees no key.
    mask = seen if hidden is None else torch.where(seen > 0, 0.0, hidden)
    found = asked(Function(function), q, mask)
    (have,) = evaluated(found, q, mask)
    want = function(q, mask)
    assert torch.isfinite(have).all()
    assert error(have[..., 1:, :], want[..., 1:, :]) < 2e-3
    if function is fused_attention:
        assert dtypes(found, ATEN.scaled_dot_product_attention.default) == {HALF}


@pytest.mark.parametrize(
    ("function", "factor"),
    [
        (lambda x: (x * x).sum(-1), 300.0),
        (lambda x: x / (x.pow(2).mean(-1, keepdim=True) + 1e-12).sqrt(), 1e-5),
        (lambda x: functional.normalize(x), 1e3),
        (lambda x: functional.layer_norm(x, (8,), eps=1e-12), 1e-5),
        (lambda x: x.relu() * 1e5 * 1e-5, 1.0),
    ],
    ids=["squares", "small epsilon", "normalize", "layer norm", "large factor"],
)
def test_what_half_cannot_hold_keeps_float32(function: Callable[..., Any], factor):
    after = Function(lambda x: function(x * factor))
    model, x = nn.Sequential(nn.Linear(8, 8, bias=False), after), torch.randn(4, 8)
    (have,) = evaluated(asked(copy.deepcopy(model), x), x)
    assert error(have, model(x)) < 5e-3


def test_a_product_with_a_weight_beyond_half_keeps_float32():
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
    with torch.no_grad():
        model[1].weight[0, 0] = 1e5
    found = asked(model, torch.randn(2, 8))
    assert dtypes(found, ATEN.linear.default) == {HALF, FLOAT}


def test_angles_of_positions_keep_float32():
    def rotary(positions, frequencies):
        return (positions.float()[:, None] @ frequencies[None]).cos()

    positions = torch.arange(5000, 5008)
    frequencies = 1.0 / 10000 ** (torch.arange(4) / 4)
    found = asked(Function(rotary), positions, frequencies)
    (have,) = evaluated(found, positions, frequencies)
    torch.testing.assert_close(have, rotary(positions, frequencies))


@pytest.mark.long
def test_integers_and_quantized_products_are_as_they_were():
    program, _ = quantized("mlp")
    plain, half = Recorder(), Recorder()
    lower(program, builder=plain)
    lower(program, builder=half, precision="float16")
    assert results(plain.requests[0]) == results(half.requests[0])
    counts = asked(Function(lambda x: x // 2 + x), torch.arange(8))
    assert {dtype for _, dtype in results(counts)} == {torch.int64}


def test_state_keeps_its_dtype_and_its_place():
    class Attends(Cache):
        def forward(self, position, rows):
            self.write(self.cache, position, rows)
            return self.cache @ rows.transpose(-1, -2)

    model = Attends(lambda cache, position, rows: cache.index_copy_(2, position, rows))
    found = asked(model, torch.tensor([3]), torch.randn(*SHAPE[:2], 1, SHAPE[3]))
    assert len(found.program.aliased_outputs) == 1
    assert {b.dtype for b in found.program.bindings} == {"float32", "int64"}
    assert dtypes(found, ATEN.index_put.default) == {FLOAT}
    assert HALF in dtypes(found, ATEN.matmul.default) | dtypes(found, ATEN.bmm.default)


def test_dynamic_sizes():
    model = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 4)).eval()
    x = torch.randn(3, 8)
    found = asked(copy.deepcopy(model), x, dynamic_shapes=({0: Dim("batch", max=16)},))
    assert found.program.inputs[0].is_dynamic
    for rows in (1, 7):
        x = torch.randn(rows, 8)
        assert error(evaluated(found, x)[0], model(x)) < 2e-3


class Products(nn.Sequential):
    """Two products; the values of the second are large."""

    def __init__(self) -> None:
        times, end = Function(lambda x: x * 200.0), Function(lambda x: x.relu() - 1.0)
        super().__init__(nn.Linear(8, 8), times, nn.Linear(8, 8), end)


@pytest.mark.parametrize(
    ("chosen", "expected"), [("linear_1", {HALF, FLOAT}), ("aten.linear", {FLOAT})]
)
def test_the_caller_chooses_what_keeps_float32(chosen, expected):
    found = asked(Products(), torch.randn(4, 8), float32_ops=[chosen])
    assert dtypes(found, ATEN.linear.default) == expected


def test_what_calibration_sees_beyond_half_of_the_range_keeps_float32():
    model, x = Products(), torch.randn(4, 8)
    large = x * 1000
    plain = asked(copy.deepcopy(model), x)
    assert dtypes(plain, ATEN.linear.default) == {HALF}
    assert error(evaluated(plain, large)[0], model(large)) == float("inf")
    found = asked(copy.deepcopy(model), x, calibration=[(x,), (large,)])
    assert dtypes(found, ATEN.linear.default) == {HALF, FLOAT}
    assert error(evaluated(found, large)[0], model(large)) < 2e-3


def test_the_example_inputs_show_the_range_if_there_is_no_calibration():
    model, large = Products(), torch.randn(4, 8) * 1000
    found = asked(copy.deepcopy(model), large)
    assert dtypes(found, ATEN.linear.default) == {HALF, FLOAT}
    assert error(evaluated(found, large)[0], model(large)) < 2e-3
    unseen = asked(copy.deepcopy(model), large, calibration=[])
    assert dtypes(unseen, ATEN.linear.default) == {HALF}


@pytest.mark.parametrize("order", [("large", "small"), ("small", "large")])
def test_each_method_keeps_float32_by_its_own_values(order):
    """Both methods have the same names of nodes."""
    model, x = Products().eval(), torch.randn(4, 8)
    programs = {
        "large": torch.export.export(copy.deepcopy(model), (x * 1000,)),
        "small": torch.export.export(copy.deepcopy(model), (x,)),
    }
    recorder = Recorder()
    partitioner = TensorRTPartitioner(builder=recorder, precision="float16", progress=False)
    methods = {name: programs[name] for name in order}
    to_edge_transform_and_lower(methods, partitioner=[partitioner])
    found = dict(zip(order, recorder.requests, strict=True))
    assert dtypes(found["large"], ATEN.linear.default) == {HALF, FLOAT}
    assert dtypes(found["small"], ATEN.linear.default) == {HALF}


@pytest.mark.parametrize("calibrated", [True, False])
def test_a_calibration_changes_neither_state_nor_inputs(calibrated):
    class Counted(State):
        def forward(self, x):
            x.mul_(2.0)
            return super().forward(x) @ x.T

    x = torch.ones(2, 3)
    program = torch.export.export(Counted(), (x,))
    options = {"calibration": [(x,)]} if calibrated else {}
    reference(precision="float16", **options).explain(program)
    assert torch.equal(program.state_dict["total"], torch.zeros(2, 3))
    assert torch.equal(x, torch.ones(2, 3))


def test_the_program_itself_is_not_changed():
    program = export("cnn")
    before = copy.deepcopy(program.state_dict)
    lower(program, precision="float16")
    torch.testing.assert_close(program.state_dict, before, rtol=0, atol=0)


def test_a_weight_that_changed_in_place_after_an_export_is_looked_at_again():
    model = nn.Linear(8, 4, bias=False)
    inputs = torch.ones(1, 8)
    assert dtypes(asked(model, inputs), ATEN.linear.default) == {HALF}
    model.weight.data.fill_(1e5)  # Beyond float16; the tensor's version stays.
    assert dtypes(asked(model, inputs), ATEN.linear.default) == {FLOAT}
