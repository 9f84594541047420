"""Operators that ExecuTorch does not know lower, run like eager, and build with TensorRT-RTX."""

from __future__ import annotations

import copy
from functools import partial
from math import inf, nan

import pytest
import torch
from torch import nn
from torch._export.verifier import SpecViolationError
from torch.export import Dim
from torch.nn import functional as F
from torch.utils import _pytree as pytree

from tests.support.lowering import blobs, lower
from tests.support.models import Function
from tests.support.programs.operator_networks import lower_and_compare
from tests.support.sampled import sampled
from tests.support.simulated_gpus import check, load_method
from trt_et import TensorRTPartitioner
from trt_et.mends.decompose_to_core_aten import decompose_to_core_aten

G = torch.Generator().manual_seed(0)
X, IMAGE = torch.randn(3, 6, 5, generator=G), torch.randn(2, 4, 9, 8, generator=G)
WHOLE = torch.randint(-99, 99, (3, 6, 5), generator=G, dtype=torch.int32)
BOUNDS = torch.tensor([-1.0, -0.5, 0.0, 0.5])


def rotated(x):
    """Pairs turned by a right angle, as many rotary embeddings do it."""
    result = torch.empty_like(x)
    result[..., ::2] = -x[..., 1::2]
    result[..., 1::2] = x[..., ::2]
    return result * 2


def cleared(x, offset, dim1, dim2):
    y = x * 2
    y.diagonal(offset, dim1, dim2).fill_(0.5)
    return y + 1


def shifted(x):
    return torch.roll(x, (-2, 3), (1, 2)) * 2


def masked(x):
    """The mask of shifted windows in Swin Transformers."""
    mask = x.new_zeros(x.shape[1], x.shape[2])
    mask[:-2, :-1] = 1
    mask[-2:, -1:] = 2
    return x + mask


def attended(x):
    """Channel attention of CBAM."""
    return x * (F.adaptive_avg_pool2d(x, 1) + F.adaptive_max_pool2d(x, 1)).sigmoid()


def rendered(density):
    """Weights along a ray, of NeRF."""
    opacity = 1 - torch.exp(-density.relu())
    return opacity * torch.cumprod(1 - opacity + 1e-10, -1)


def extremes(dtype):
    """Return the ends of a dtype, and numbers in between."""
    known = torch.iinfo(dtype)
    return torch.tensor(
        [known.min, known.min + 1, -5, 0, 1, 7, known.max - 1, known.max], dtype=dtype
    )


def shifts(dtype):
    bits = torch.iinfo(dtype).bits
    return torch.tensor([1, bits - 2, bits - 1, bits, -1, 2, 0, 3], dtype=dtype)


SHIFTS = (1, 30, 31, 32, 62, 63, 64, -1, 1 << 40)


def moved_bits(x, by):
    return [
        *(x[:, None] >> by, x[:, None] << by, (2 << by) + (-100 >> by) + x),
        *((x >> n) + by for n in SHIFTS),
        *((x << n) + by for n in SHIFTS),
    ]


TIES = (torch.arange(40) % 3).reshape(2, 20).float()
CASES = {
    "variance and mean": (
        lambda x: [
            *torch.var_mean(x, (0, 2), keepdim=True),
            *torch.std_mean(x),
            *torch.var_mean(x, 1, correction=0),
        ],
        (X,),
    ),
    "largest of a grid": (
        lambda x: [
            *(F.adaptive_max_pool2d(x, (4, 3)), F.adaptive_max_pool2d(x, (3, 4))),
            F.adaptive_max_pool3d(x, (1, 3, 2)),
        ],
        (IMAGE,),
    ),
    "strides": (
        lambda x: [
            torch.as_strided(x * 2, (2, 3, 4), (30, 5, 1), 2) + 1,
            torch.as_strided((x * 2).transpose(0, 2), (7, 4), (5, 3)) + 1,
        ],
        (X,),
    ),
    "largest of lines": (lambda x: F.adaptive_max_pool1d(x, 3), (X,)),
    "channel attention": (attended, (IMAGE,)),
    "whole numbers": (
        lambda x: [(x % 3 - 1).cumprod(-2), 7 % (x.abs() + 1), x << 3, x >> 3],
        (WHOLE,),
    ),
    "bilinear": (nn.Bilinear(5, 6, 7), (X, torch.randn(3, 6, 6, generator=G))),
    "buckets": (
        lambda x: [
            torch.bucketize(x, BOUNDS),
            torch.bucketize(x, BOUNDS, right=True, out_int32=True),
        ],
        (torch.tensor([nan, -inf, inf, 0.0, -1.0, -0.7, 0.5, 3.0]),),
    ),
    "hypotenuses of a square beyond the dtype, of infinity and NaN": (
        torch.hypot,
        (
            torch.tensor([3e30, -inf, 0.0, 2.0, inf, nan, nan]),
            torch.tensor([4e30, inf, 0.0, 0.0, nan, -inf, 1]),
        ),
    ),
    "hypotenuses of half precision": (
        lambda x, y: [torch.hypot(x / 9e3, y / 8e3), torch.hypot(x * 300, y * -400)],
        (X.half(), X.half() + 0),
    ),
    "hypotenuses, distances and powers of two": (
        lambda x, y: [torch.hypot(x, x + 1), torch.dist(x, y), torch.exp2(x)],
        (X, X * 2),
    ),
    "a copy": (lambda x, y: torch.ops.aten.copy(x * 2, y * 3) + 1, (X, X[0].double().int())),
    "quotients of torch's primitives": (
        lambda x, y: [torch.ops.prims.div(x, x + 3.5) + 1, torch.ops.prims.div(y, y % 7 + 1) + 1],
        (X.abs(), WHOLE),
    ),
    **{
        f"shifts of {dtype}": (moved_bits, (extremes(dtype), shifts(dtype)))
        for dtype in (torch.int32, torch.int64)
    },
    "equal numbers in order": (
        lambda x, y: [
            *x.sort(dim=1, stable=True),
            y.argsort(dim=1, descending=True, stable=True) * 2,
            (x > 0).sort(0)[0],
            torch.msort(y),
        ],
        (TIES, TIES.int()),
    ),
    "larger and smaller, but for what is no number": (
        lambda x: torch.fmax(x, x.flip(0)) - torch.fmin(x, x.flip(0)),
        (torch.tensor([nan, -inf, 1.0, 2.0, 3.0, 4.0]),),
    ),
    "a matrix times a vector": (torch.addmv, (X[:2, 0, :3].flatten(), X[0], X[1, 0])),
    "nothing yet": (
        lambda x: [
            torch.empty(3, 6, 5).copy_(x) + x.new_empty(3, 6, 5).fill_(1),
            torch.empty_like(x).copy_(x) * 2,
        ],
        (X,),
    ),
    "moved around": (
        lambda x: [
            *(rotated(x), shifted(x)),
            F.pad(x, (2, 1, 0, 3), "circular") + F.pad(x, (1, 2, 3, 0), "reflect"),
        ],
        (IMAGE,),
    ),
    "parts written": (
        lambda x: [masked(x), cleared(x, 1, 1, 2), cleared(x, -2, 2, 0)],
        (X,),
    ),
    "whether all are finite": (
        lambda x: (
            torch.where(torch._is_all_true(x.isfinite()), x * 2, x)
            + torch.where(torch.ops.aten._is_any_true(x.isinf()), x, 1.0)
        ),
        (X,),
    ),
    "distances to weights": (lambda x: torch.cdist(x, IMAGE[0]) * 2, (IMAGE,)),
    "labels": (lambda n: F.one_hot(n % 5, 5) * 2, (WHOLE.long(),)),
    "signs": (
        lambda x, y: [torch.copysign(x, y) + 1, torch.copysign(y, -0.0) * 2, x.signbit() + 1],
        (torch.tensor([0.0, -0.0, -2.0, inf]), torch.tensor([-0.0, 3.0, -inf, -1.0])),
    ),
    "rounded numbers": (lambda x: x.round(decimals=2) + (x * 99).round(decimals=-1), (X,)),
    "flags": (
        lambda x: [(6 & x) + 1, torch.bitwise_or(3, x), torch.bitwise_xor(5, x) * 2],
        (WHOLE,),
    ),
    "statistics of the batch": (
        lambda x: F.batch_norm(x, torch.zeros(4), torch.ones(4), training=True),
        (IMAGE,),
    ),
}


@pytest.mark.parametrize("case", sampled(CASES, 8))
def test_one_engine_computes_it_like_eager(case):
    function, inputs = CASES[case]
    program = torch.export.export(Function(function).eval(), inputs)
    pte, partitioner = lower_and_compare(program, runs=True)
    assert len(blobs(pte)) == 1
    assert not partitioner.report.not_delegated
    found = load_method(pte).execute(list(inputs))
    with torch.no_grad():
        expected = pytree.tree_leaves(function(*inputs))
        torch.testing.assert_close(found, expected, equal_nan=True)


RESIZED = {
    "triangles": {"size": (4, 11), "mode": "bilinear"},
    "splines": {"size": (13, 3), "mode": "bicubic"},
    "corners": {"size": (4, 11), "mode": "bicubic", "align_corners": True},
    "factors": {"scale_factor": (0.45, 1.3), "mode": "bilinear"},
    "one row": {"size": (1, 8), "mode": "bicubic"},
}


@pytest.mark.parametrize("how", RESIZED)
def test_antialiased_images_are_products_of_matrices(how):
    resize = partial(F.interpolate, antialias=True, **RESIZED[how])
    program = torch.export.export(Function(resize), (IMAGE,), dynamic_shapes=((BATCH,),))
    decomposed = decompose_to_core_aten(program)
    for images in (IMAGE, IMAGE[:1]):
        torch.testing.assert_close(decomposed.module()(images), resize(images))
    assert not any("upsample" in str(node.target) for node in decomposed.graph.nodes)


def test_one_engine_resizes_a_batch_of_any_size_with_antialiasing():
    resize = partial(F.interpolate, size=(4, 5), mode="bicubic", antialias=True)
    program = torch.export.export(Function(resize), (IMAGE,), dynamic_shapes=((BATCH,),))
    pte = lower(program, full_graph=True)
    check(pte, resize, (IMAGE,), (IMAGE[:1],))


BUILT = ("largest of a grid", "bilinear", "parts written", "whole numbers")


@pytest.mark.parametrize("case", sampled(BUILT, 2))
def test_tensorrt_rtx_builds_it(case):
    function, inputs = CASES[case]
    program = torch.export.export(Function(function).eval(), inputs)
    assert len(blobs(lower(program, builder="tensorrt_rtx"))) == 1


def quantiles(x):
    found = [x.quantile(0.3, 1), x.quantile(torch.tensor([0.1, 0.5]), dim=0, keepdim=True)]
    return [*found, x.quantile(0.9) * x, x.quantile(torch.tensor(0.25), dim=-1)]


ROUNDED = ("lower", "higher", "nearest", "midpoint")
WIDER = {
    "along a ray": (lambda x: [x.cumprod(1), rendered(x)], X),
    "of extremes": (lambda x: x.cumprod(0), torch.tensor([1e-30, -1e20, 0.0, 3e38, -inf, nan])),
    "of many": (lambda x: (x + 2).cumprod(0), torch.rand(70, 2)),
    "of float16": (lambda x: x.cumprod(1), X.half()),
    "of a number": (lambda x: x.cumprod(0), torch.tensor(2.5)),
    "quantiles": (quantiles, torch.rand(5, 11)),
    "quantiles of what is no number": (quantiles, torch.tensor([[1.0, nan, 2.0], [3.0, 4.0, 5.0]])),
    "rounded quantiles": (
        lambda x: [x.quantile(q, 1, interpolation=how) for q in (0.1, 0.45) for how in ROUNDED],
        torch.rand(5, 11),
    ),
}


@pytest.mark.parametrize("case", sampled(WIDER, 3))
def test_what_torch_computes_in_double_precision_is_float32_in_an_engine(case):
    function, x = WIDER[case]
    pte = lower(torch.export.export(Function(function), (x,)), full_graph=True)
    found = load_method(pte).execute([x])
    torch.testing.assert_close(found, pytree.tree_leaves(function(x)), equal_nan=True)


def test_quantiles_of_any_length_run_like_eager():
    program = torch.export.export(
        Function(quantiles), (X[0],), dynamic_shapes=(({1: Dim("n", min=2, max=9)},),)
    )
    check(
        lower(program, full_graph=True),
        quantiles,
        *((torch.rand(X.shape[1], n),) for n in (5, 2, 9)),
    )


def test_running_products_of_any_length_run_like_eager():
    function = Function(lambda x: x.cumprod(1) * 2)
    program = torch.export.export(function, (X,), dynamic_shapes=(({1: Dim("n", max=9)},),))
    check(lower(program), function, (X,), *((torch.randn(3, n, 5),) for n in (2, 8, 9)))


def of_images(x):
    return [attended(x), rotated(x), shifted(x), torch.bucketize(x, BOUNDS) + 1]


def padded_around(x):
    return F.pad(x, (2, 3), mode="circular") * 2


BATCH = {0: Dim("batch", min=1, max=8)}
LENGTH = {2: Dim("length", min=3, max=9)}
SIZES = {1: Dim("height", min=4, max=9), 2: Dim("width", min=4, max=8)}
BATCHES = [(batch, *IMAGE.shape[1:]) for batch in (1, 2, 7)]


@pytest.mark.parametrize(
    ("function", "example", "dynamic", "shapes"),
    [
        pytest.param(of_images, IMAGE, BATCH, BATCHES, marks=pytest.mark.long),
        (padded_around, X, LENGTH, [(3, 6, 3), (3, 6, 5), (3, 6, 9)]),
        pytest.param(
            *(lambda x: [shifted(x), masked(x)], X, SIZES, [(3, 4, 4), (3, 6, 5), (3, 9, 8)]),
            marks=pytest.mark.long,
        ),
    ],
)
def test_sizes_may_be_dynamic(function, example, dynamic, shapes):
    program = torch.export.export(Function(function), (example,), dynamic_shapes=((dynamic,),))
    pte = lower(program, full_graph=dynamic is SIZES)
    assert len(blobs(pte)) == 1
    check(pte, function, *((torch.randn(shape),) for shape in shapes))
    assert len(blobs(lower(program, builder="tensorrt_rtx"))) == 1


@pytest.mark.parametrize("dynamic", [{1: Dim.DYNAMIC}, {1: Dim("height", min=1, max=9)}, {}])
def test_a_shift_that_may_exceed_the_size_is_left_to_torch(dynamic):
    function = Function(lambda x: torch.roll(x, -7, 1) * 2)
    program = torch.export.export(function, (X,), dynamic_shapes=((dynamic,),))
    check(lower(program), function, (X,))


@pytest.mark.parametrize("shift", [1, -1, 2])
def test_a_line_of_two_is_rolled(shift):
    function, line = Function(lambda x: torch.roll(x, shift, 0) * 2), torch.randn(5)
    program = torch.export.export(function, (line,), dynamic_shapes=(({0: Dim("n", min=2)},),))
    check(lower(program), function, (line[:2],), (line[:3],), (line,))


def test_running_statistics_are_kept_between_calls():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4)).train().requires_grad_(False)
    eager = copy.deepcopy(model)
    pte = lower(torch.export.export(model, (IMAGE,)), builder="reference")
    check(pte, eager, *((torch.randn(IMAGE.shape) + 2,) for _ in range(3)))


@pytest.mark.long
@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int64])
def test_bits_are_shifted_on_the_cpu_as_torch_shifts_them(dtype):
    bits = torch.iinfo(dtype).bits

    def shifted(x, by):
        numbers = (0, 1, bits - 2, bits - 1, bits, bits + 3, -1, 300)
        y = x.clone()
        y <<= 1
        y >>= 2
        return [
            y,
            *(f for n in numbers for f in (x >> n, x << n)),
            x[:, None] >> by,
            x[:, None] << by,
        ]

    inputs = (extremes(dtype), torch.tensor([0, 1, bits - 2, bits - 1, bits, 2]).to(dtype))
    program = torch.export.export(Function(shifted), inputs)
    check(lower(program, excluded_ops=[lambda _: True]), shifted, inputs, atol=0, rtol=0)


@pytest.mark.parametrize("draw", [torch.rand_like, torch.randn_like, F.gumbel_softmax])
def test_random_numbers_are_drawn_outside_of_the_engine(draw):
    program = torch.export.export(Function(lambda x: (draw(x) * 3).sin()), (IMAGE,))
    partitioner = TensorRTPartitioner(builder="reference")
    pte = lower(program, partitioner=partitioner)
    assert len(blobs(pte)) == 1
    assert "random numbers" in str(partitioner.report.not_delegated)
    method = load_method(pte)
    first = method.execute([IMAGE])[0].clone()
    assert not torch.equal(first, method.execute([IMAGE])[0])


def test_an_excluded_part_runs_on_the_cpu():
    program = torch.export.export(Function(attended), (IMAGE,))
    partitioner = TensorRTPartitioner(builder="reference", excluded_ops=["aten.amax"])
    pte = lower(program, partitioner=partitioner)
    assert "aten::amax.default" in str(partitioner.report.not_delegated)
    check(pte, attended, (IMAGE,))


@pytest.mark.parametrize(
    ("name", "function", "inputs", "dynamic"),
    [
        # Places of the largest, which max_unpool2d asks for, are never made up.
        (
            *("adaptive_max_pool2d", lambda x: F.adaptive_max_pool2d(x, 2, return_indices=True)[1]),
            *((IMAGE,), ({},)),
        ),
        ("cumprod", lambda x: x.cumprod(1), (IMAGE,), ({1: Dim("length", min=2)},)),
        # Only torch's kernel refuses these shifts.
        ("bitwise_left_shift", torch.bitwise_left_shift, (torch.ones(2), torch.ones(2)), ({}, {})),
    ],
)
def test_what_has_no_decomposition_is_left_to_executorch(name, function, inputs, dynamic):
    program = torch.export.export(Function(function), inputs, dynamic_shapes=(dynamic,))
    with pytest.raises(SpecViolationError, match=name):
        lower(program)


def test_a_program_that_executorch_knows_stays_as_it_is():
    model = nn.Sequential(nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4), nn.InstanceNorm2d(4)).eval()
    program = torch.export.export(model, (IMAGE,))
    assert decompose_to_core_aten(program) is program
