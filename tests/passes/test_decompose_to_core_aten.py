"""Operators that ExecuTorch does not know lower, run like eager, and build with TensorRT-RTX."""

from __future__ import annotations

import copy

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
from tests.support.simulated_gpus import load_method
from trt_et import TensorRTPartitioner
from trt_et.passes.decompose_to_core_aten import decompose_to_core_aten

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


SHIFTS = {
    "shifts by others": lambda x, by: [x[:, None] >> by, x[:, None] << by],
    "shifts to the right by numbers": lambda x, by: [
        (x >> n) + by for n in (1, 30, 31, 32, 62, 63, 64, -1, 1 << 40)
    ],
    "shifts to the left by numbers": lambda x, by: [
        (x << n) + by for n in (1, 30, 31, 32, 62, 63, 64, -1, 1 << 40)
    ],
    "shifts of numbers": lambda x, by: (2 << by) + (-100 >> by) + x,
}
TIES = (torch.arange(40) % 3).reshape(2, 20).float()


CASES = {
    "variance and mean": (lambda x: torch.var_mean(x, (0, 2), keepdim=True), (X,)),
    "standard deviation and mean": (lambda x: torch.std_mean(x), (X,)),
    "uncorrected variance and mean": (lambda x: torch.var_mean(x, 1, correction=0), (X,)),
    "largest of a grid": (lambda x: F.adaptive_max_pool2d(x, (4, 3)), (IMAGE,)),
    "largest of lines": (lambda x: F.adaptive_max_pool1d(x, 3), (X,)),
    "largest of volumes": (lambda x: F.adaptive_max_pool3d(x, (1, 3, 2)), (IMAGE,)),
    "channel attention": (attended, (IMAGE,)),
    "running products": (lambda x: x.cumprod(1), (X,)),
    "running products of extremes": (
        lambda x: x.cumprod(0),
        (torch.tensor([1e-30, 1e-30, 1e30, 1e30, -1e30, 1e30, 0.0, float("inf")]),),
    ),
    "many running products": (lambda x: (x + 2).cumprod(0), (torch.rand(70, 2),)),
    "running products of whole numbers": (lambda x: (x % 3 - 1).cumprod(-2), (WHOLE,)),
    "weights along a ray": (rendered, (X,)),
    "bilinear": (nn.Bilinear(5, 6, 7), (X, torch.randn(3, 6, 6, generator=G))),
    "buckets": (lambda x: torch.bucketize(x, BOUNDS), (X,)),
    "buckets closed on the left": (
        lambda x: torch.bucketize(x, BOUNDS, right=True, out_int32=True),
        (BOUNDS + 0,),
    ),
    "powers of two": (torch.exp2, (X,)),
    "buckets of what is no number": (
        lambda x: torch.bucketize(x, BOUNDS) + torch.bucketize(x, BOUNDS, right=True),
        (torch.tensor([float("nan"), -torch.inf, torch.inf, 0.0]),),
    ),
    "hypotenuses of a square beyond the dtype": (
        torch.hypot,
        (torch.tensor([3e30, -torch.inf, 0.0, 2.0]), torch.tensor([4e30, torch.inf, 0.0, 0.0])),
    ),
    "hypotenuses of an infinity and NaN": (
        torch.hypot,
        (torch.tensor([torch.inf, torch.nan, torch.nan]), torch.tensor([torch.nan, -torch.inf, 1])),
    ),
    "small hypotenuses of half precision": (torch.hypot, (X.half() / 9e3, X.half() / 8e3)),
    "a copy": (lambda x, y: torch.ops.aten.copy(x * 2, y * 3) + 1, (X, X[0].double().int())),
    "a quotient of torch's primitives": (
        lambda x, y: torch.ops.prims.div(x * 2, y + 3.5) + 1,
        (X, X * 3),
    ),
    "a quotient of integers of torch's primitives": (
        lambda x, y: torch.ops.prims.div(x * 2, y) + 1,
        (WHOLE, WHOLE.abs() % 7 + 1),
    ),
    "remainders of a number": (lambda x: 7 % x, (WHOLE.abs() + 1,)),
    **{
        f"{name} of {dtype}": (function, (extremes(dtype), shifts(dtype)))
        for dtype in (torch.int32, torch.int64)
        for name, function in SHIFTS.items()
    },
    "equal numbers in order": (lambda x: x.sort(dim=1, stable=True)[1] * 2, (TIES,)),
    "equal numbers in order, downwards": (
        lambda x: x.argsort(dim=1, descending=True, stable=True) * 2,
        (TIES.int(),),
    ),
    "hypotenuses of half precision": (torch.hypot, (X.half() * 300, X.half() * -400)),
    "hypotenuses": (torch.hypot, (X, X + 1)),
    "a distance": (torch.dist, (X, X * 2)),
    "larger and smaller, but for what is no number": (
        lambda x: torch.fmax(x, x.flip(0)) - torch.fmin(x, x.flip(0)),
        (torch.tensor([float("nan"), -torch.inf, 1.0, 2.0, 3.0, 4.0]),),
    ),
    "a matrix times a vector": (torch.addmv, (X[:2, 0, :3].flatten(), X[0], X[1, 0])),
    "in stable order": (lambda x: torch.sort(x, dim=1, stable=True)[0], (X,)),
    "positions in stable order": (lambda x: torch.argsort(x, dim=1, stable=True), (X,)),
    "shifted to the left": (lambda x: x << 3, (WHOLE,)),
    "shifted to the right": (lambda x: x >> 3, (WHOLE,)),
    "nothing yet, by its size": (
        lambda x: torch.empty(3, 6, 5).copy_(x) + x.new_empty(3, 6, 5).fill_(1),
        (X,),
    ),
    "nothing yet": (lambda x: torch.empty_like(x).copy_(x) * 2, (X,)),
    "turned by a right angle": (rotated, (IMAGE,)),
    "padded around, beside a mirror": (
        lambda x: F.pad(x, (2, 1, 0, 3), "circular") + F.pad(x, (1, 2, 3, 0), "reflect"),
        (IMAGE,),
    ),
    "shifted around": (shifted, (IMAGE,)),
    "numbers written to slices": (masked, (X,)),
    "a diagonal written": (lambda x: cleared(x, 1, 1, 2), (X,)),
    "a diagonal below written": (lambda x: cleared(x, -2, 2, 0), (X,)),
    "statistics of the batch": (
        lambda x: F.batch_norm(x, torch.zeros(4), torch.ones(4), training=True),
        (IMAGE,),
    ),
}


@pytest.mark.parametrize("case", CASES)
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


BUILT = ("largest of a grid", "bilinear", "a diagonal written", "shifted to the right")


@pytest.mark.parametrize("case", BUILT)
def test_tensorrt_rtx_builds_it(case):
    function, inputs = CASES[case]
    program = torch.export.export(Function(function).eval(), inputs)
    assert len(blobs(lower(program, builder="tensorrt_rtx"))) == 1


def padded_around(x):
    return F.pad(x, (2, 3), mode="circular") * 2


BATCH = {0: Dim("batch", min=1, max=8)}
LENGTH = {2: Dim("length", min=3, max=9)}
SIZES = {1: Dim("height", min=4, max=9), 2: Dim("width", min=4, max=8)}
BATCHES = [(batch, *IMAGE.shape[1:]) for batch in (1, 2, 7)]


@pytest.mark.parametrize(
    ("function", "example", "dynamic", "shapes"),
    [
        *((each, IMAGE, BATCH, BATCHES) for each in (attended, rendered, rotated, shifted)),
        (lambda x: torch.bucketize(x, BOUNDS) + 1, IMAGE, BATCH, BATCHES),
        (padded_around, X, LENGTH, [(3, 6, 3), (3, 6, 5), (3, 6, 9)]),
        *((each, X, SIZES, [(3, 4, 4), (3, 6, 5), (3, 9, 8)]) for each in (shifted, masked)),
    ],
)
def test_sizes_may_be_dynamic(function, example, dynamic, shapes):
    program = torch.export.export(Function(function), (example,), dynamic_shapes=((dynamic,),))
    pte = lower(program, full_graph=dynamic is SIZES)
    assert len(blobs(pte)) == 1
    method = load_method(pte)
    for shape in shapes:
        x = torch.randn(shape)
        torch.testing.assert_close(method.execute([x])[0], function(x))
    assert len(blobs(lower(program, builder="tensorrt_rtx"))) == 1


@pytest.mark.parametrize("dynamic", [{1: Dim.DYNAMIC}, {1: Dim("height", min=1, max=9)}, {}])
def test_a_shift_that_may_exceed_the_size_is_left_to_torch(dynamic):
    function = Function(lambda x: torch.roll(x, -7, 1) * 2)
    program = torch.export.export(function, (X,), dynamic_shapes=((dynamic,),))
    pte = lower(program)
    method = load_method(pte)
    torch.testing.assert_close(method.execute([X])[0], function(X))


def test_running_statistics_are_kept_between_calls():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4)).train().requires_grad_(False)
    eager = copy.deepcopy(model)
    pte = lower(torch.export.export(model, (IMAGE,)), builder="reference")
    method = load_method(pte)
    for _ in range(3):
        x = torch.randn(IMAGE.shape) + 2
        torch.testing.assert_close(method.execute([x])[0], eager(x), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64])
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

    by = torch.tensor([0, 1, bits - 2, bits - 1, bits, 2]).to(dtype)
    program = torch.export.export(Function(shifted), (extremes(dtype), by))
    pte = lower(program, builder="reference", excluded_ops=[lambda _: True])
    found = load_method(pte).execute([extremes(dtype), by])
    for one, other in zip(found, shifted(extremes(dtype), by), strict=True):
        torch.testing.assert_close(one, other)


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
    found = load_method(pte).execute([IMAGE])
    torch.testing.assert_close(found[0], attended(IMAGE))


@pytest.mark.parametrize(
    ("name", "function", "inputs", "dynamic"),
    [
        # Places of the largest, which max_unpool2d asks for, are never made up.
        (
            *("adaptive_max_pool2d", lambda x: F.adaptive_max_pool2d(x, 2, return_indices=True)[1]),
            *((IMAGE,), ({},)),
        ),
        ("cumprod", lambda x: x.cumprod(1), (IMAGE,), ({1: Dim("length", min=2, max=8)},)),
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
