"""What the reference builder takes apart equals torch's own operators."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional
from torch.utils import _pytree as pytree

from tests.support.lowering import blobs, lower
from tests.support.models import Function
from tests.support.sampled import sampled
from tests.support.simulated_gpus import check, load_method
from trt_et.conversion.operators.member_sums import scatter_reduce
from trt_et.engines.reference import kernels

quantized = torch.ops.quantized_decomposed
DEEP = (2, 4, 9, 8, 7)


@pytest.fixture
def x():
    torch.manual_seed(0)
    return torch.randn(DEEP)


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("max_pool3d", (3,)),
        ("max_pool3d", (2, 1, 1)),
        ("max_pool3d", ((2, 3, 2), (1, 2, 2), (1, 1, 0))),
        ("max_pool3d", (3, 2, 1, 2)),
        ("max_pool3d", (3, 2, 1, (1, 2, 1), True)),
        ("avg_pool3d", (3,)),
        ("avg_pool3d", ((2, 3, 2), (1, 2, 2), (1, 1, 0))),
        ("avg_pool3d", (3, 2, 1, True)),
        ("avg_pool3d", (3, 2, 1, True, False)),
        ("avg_pool3d", (3, 2, 1, False, True, 7)),
        ("adaptive_avg_pool3d", (1,)),
        ("adaptive_avg_pool3d", ((4, 3, 5),)),
        ("adaptive_avg_pool3d", ((9, 1, 7),)),
    ],
)
def test_pooling_of_volumes(x, name, args):
    taken_apart, whole = getattr(kernels, f"_{name}"), getattr(functional, name)
    for batched in (x, x[0]):
        torch.testing.assert_close(taken_apart(batched, *args), whole(batched, *args))


@pytest.mark.parametrize(
    ("transposed", "stride", "padding", "dilation", "output_padding", "groups"),
    [
        (False, (1, 1, 1), (0, 0, 0), (1, 1, 1), (0, 0, 0), 1),
        (False, (2, 1, 2), (1, 2, 0), (1, 2, 1), (0, 0, 0), 2),
        (True, (1, 1, 1), (0, 0, 0), (1, 1, 1), (0, 0, 0), 1),
        (True, (3, 1, 2), (1, 2, 0), (1, 2, 1), (2, 0, 1), 2),
        (True, (2, 2, 2), (0, 1, 1), (2, 1, 1), (1, 1, 0), 4),
    ],
)
def test_convolution_of_volumes(x, transposed, stride, padding, dilation, output_padding, groups):
    sizes = (4, 2) if transposed else (6, 4 // groups)
    weight, bias = torch.randn(*sizes, 3, 2, 3), torch.randn(2 * groups if transposed else 6)
    how = (stride, padding, dilation, transposed, output_padding, groups)
    found = kernels._convolution(x, weight, bias, *how)
    expected = torch.convolution(x, weight, bias, *how)
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize(
    ("reduce", "dtype"),
    [
        *((reduce, torch.float32) for reduce in ("sum", "mean", "prod", "amax", "amin")),
        *((reduce, torch.int32) for reduce in ("sum", "prod", "amax", "amin")),
    ],
)
def test_reductions_of_what_is_scattered(dtype, reduce, include_self):
    torch.manual_seed(0)
    x, source = ((torch.randn(5, 3, 4) * 9).to(dtype) for _ in range(2))
    for dim, index in (
        (0, torch.randint(0, 5, (5, 3, 4))),
        (-2, torch.randint(0, 3, (4, 2, 3))),
    ):
        found = scatter_reduce(x, dim, index, source, reduce, include_self=include_self)
        expected = x.scatter_reduce(dim, index, source, reduce, include_self=include_self)
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dim", [0, -1])
def test_sorting(dim, descending):
    x = torch.randperm(20).reshape(4, 5)
    for found, want in zip(
        kernels._sort(x, dim, descending), torch.sort(x, dim, descending), strict=True
    ):
        torch.testing.assert_close(found, want)


def test_negative_padding_runs_like_eager():
    pads = ((0, 0, 1, -1), (-2, 1), (0, -3, -1, -1, 2, 0))
    _runs_like_eager(
        lambda x: [functional.pad(x * 2, pad, value=0.5) for pad in pads], torch.randn(3, 4, 5)
    )


# Halves, which round to even; beyond both ends; and ordinary numbers.
NUMBERS = torch.cat([torch.arange(-300, 300) * 0.125, torch.randn(40) * 10]).reshape(4, 160)


def test_numbers_quantized_per_tensor_run_like_eager():
    def round_trip(x, *how):
        q = quantized.quantize_per_tensor.default(x, *how, torch.int8)
        return quantized.dequantize_per_tensor.default(q, *how, torch.int8) * 2

    ways = ((0.25, 0, -128, 127), (0.1, -3, -127, 127), (0.25, -128, -128, 127))
    _runs_like_eager(lambda x: [round_trip(x, *how) for how in ways], NUMBERS)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_numbers_dequantized_to_half_precision_equal_eagers(dtype):
    how = (0.0503, 3, -128, 127, torch.int8)

    def round_trip(x):
        q = quantized.quantize_per_tensor.default(x, *how)
        return quantized.dequantize_per_tensor.default(q, *how, out_dtype=dtype).float() * 2

    program = torch.export.export(Function(round_trip), (NUMBERS,))
    (found,) = load_method(lower(program)).execute([NUMBERS])
    torch.testing.assert_close(found, round_trip(NUMBERS), rtol=0, atol=0)


@pytest.mark.parametrize("axis", sampled([0, 1], 2))
def test_numbers_quantized_per_channel_run_like_eager(axis):
    size = NUMBERS.shape[axis]
    scales, how = torch.linspace(0.1, 0.5, size), (axis, -127, 127, torch.int8)

    zeros, sevens = torch.zeros(size, dtype=torch.int64), torch.full((size,), 7)

    def round_trip(x, chosen, given):
        q = quantized.quantize_per_channel.default(x, scales, chosen, *how)
        return quantized.dequantize_per_channel.default(q, scales, given, *how) * 2

    pairs = ((zeros, zeros), (sevens, sevens), (zeros, None))
    _runs_like_eager(lambda x: [round_trip(x, *pair) for pair in pairs], NUMBERS)


def test_sums_and_the_order_of_one_number_run_like_eager():
    _runs_like_eager(
        lambda x, i: (torch.cumsum(x, 0), torch.cumsum(i, 0), x.sort(descending=True)[0] * 2),
        *(torch.tensor(3.0), torch.tensor(3)),
    )


def test_remainders_of_negative_integers_have_the_divisors_sign():
    x = torch.arange(-9, 9, dtype=torch.int32)
    _runs_like_eager(
        lambda x, y, f: (x % 4, x % y, y % -3, f % 4, x % 2.5),
        *(x, torch.where(x % 2 == 0, 5, -3).int(), x / 3),
    )


def test_paddings_and_remainders_by_sizes_run_like_eager():
    model = Function(
        lambda x: (
            functional.pad(x * 2, (0, 16 - x.shape[1])),
            functional.pad(x * 2, (16 - x.shape[1], 0)),
            (x * 9).long() % x.shape[1],
        )
    )
    sizes = (({1: torch.export.Dim("n", min=4, max=16)},),)
    pte = lower(torch.export.export(model, (torch.randn(2, 6),), dynamic_shapes=sizes))
    method = load_method(pte)
    for size in (4, 7, 16):
        x = torch.randn(2, size)
        torch.testing.assert_close(method.execute([x]), list(model(x)))


@pytest.mark.long
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_products_of_pairs_run_at_every_size(dtype):
    layer = torch.nn.Linear(4, 3).requires_grad_(requires_grad=False).to(dtype)

    def pairs(x):
        apart = (x[:, :, None] - x[:, None]).abs()
        return layer(apart).relu(), layer(apart[0]) + 1, (apart[0] @ layer.weight.T).relu()

    x = torch.randn(2, 7, 4, dtype=dtype)
    sizes = (({1: torch.export.Dim("n", min=2, max=9)},),)
    pte = lower(torch.export.export(Function(pairs), (x,), dynamic_shapes=sizes))
    tolerance = 1e-4 if dtype is torch.float32 else 1e-2
    check(pte, pairs, (x,), (x[:, :2].clone(),), atol=tolerance, rtol=tolerance)


@pytest.mark.long
def test_positions_resized_for_a_transformer_run_like_eager():
    def resized(positions):
        grid = positions.reshape(1, 4, 4, 8).permute(0, 3, 1, 2) * 2
        larger = functional.interpolate(grid, scale_factor=(1.6, 1.3), mode="bicubic")
        return larger.permute(0, 2, 3, 1).flatten(1, 2) + 1

    _runs_like_eager(resized, torch.randn(1, 16, 8))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_long_rows_of_half_precision_are_normalized_like_eager(dtype):
    rows = torch.linspace(0, 2, 8192).to(dtype).reshape(2, 4096)
    scale, shift = torch.full((4096,), 2, dtype=dtype), torch.full((4096,), 0.5, dtype=dtype)
    _runs_like_eager(
        lambda x, *parameters: (
            functional.layer_norm(x, (4096,)),
            functional.layer_norm(x * 2, (4096,), *parameters),
        ),
        *(rows, scale, shift),
    )


SUMS = {
    "product": lambda x: x @ x.T,
    "linear": lambda x: functional.linear(x, x, x[:, 0]),
    "attention": lambda x: functional.scaled_dot_product_attention(*[x.view(1, 4, 64, 64)] * 3),
    "convolution": lambda x: functional.conv2d(x.view(1, 64, 16, 16), x.view(16, 64, 4, 4)),
    "convolution of a volume": lambda x: functional.conv3d(
        x.view(1, 4, 16, 16, 16), x[:, :512].view(4, 4, 8, 4, 4)
    ),
    "pooling": lambda x: functional.avg_pool2d(x.view(1, 4, 64, 64), 64),
    "instance norm": lambda x: functional.instance_norm(x.view(1, 4, 64, 64)),
    "variance": lambda x: x.var(-1),
    "cumulative": lambda x: x.cumsum(-1),
    "cumulative in float32": lambda x: x.cumsum(-1, dtype=torch.float32),
    "scattered": lambda x: x.new_zeros(4, 2).scatter_add(
        1, torch.zeros(4, 4096, dtype=torch.int64), x
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_sums_of_many_numbers_in_half_precision_do_not_stop_growing(dtype):
    rows = torch.rand(4, 4096, generator=torch.Generator().manual_seed(0)) + 0.5
    model = Function(lambda x: [add(x) for add in SUMS.values()])
    pte = lower(torch.export.export(model, (rows.to(dtype),)), builder="reference")
    assert len(blobs(pte)) == 1
    expected = model(rows.to(dtype).float())
    for name, found, want in zip(
        SUMS, load_method(pte).execute([rows.to(dtype)]), expected, strict=True
    ):
        error = (found.float() - want).abs().max() / want.abs().max()
        assert error <= 2 * torch.finfo(dtype).eps, name


def test_a_cumulative_sum_with_an_integer_dtype_rounds_before_it_adds():
    _runs_like_eager(
        lambda x: torch.cumsum(x, -1, dtype=torch.int64), torch.full((2, 8), 1.75).half()
    )


def test_attention_over_the_edges_of_a_graph_runs_like_eager():
    def attend(x, edges):
        start, end = edges
        score = (x[start] * x[end]).sum(1)
        largest = torch.full((x.shape[0],), -1e9).scatter_reduce(0, end, score, "amax")
        return torch.zeros(x.shape[0]).scatter_add(0, end, (score - largest[end]).exp())

    torch.manual_seed(0)
    _runs_like_eager(
        attend, torch.randn(5, 8), torch.tensor([[0, 1, 2, 3, 4, 0], [1, 2, 3, 4, 0, 2]])
    )


def _runs_like_eager(function, *inputs):
    pte = lower(torch.export.export(Function(function), inputs), builder="reference")
    assert len(blobs(pte)) == 1
    found = load_method(pte).execute(list(inputs))
    torch.testing.assert_close(found, pytree.tree_leaves(function(*inputs)))
