"""The networks of single operators compute what eager computes."""

from __future__ import annotations

import math
from math import inf, nan

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tests.support.programs.operator_networks import (
    BIAS,
    BY,
    CLOSE,
    HEADS,
    IMAGE,
    KEYS,
    LINE,
    MASK,
    QUERIES,
    ROWS,
    SMALL,
    WHOLE,
    X,
    assert_network_equals_eager,
    assert_one_engine,
    put,
    randn,
)
from tests.support.sampled import sampled

aten = torch.ops.aten

FLOATS = (torch.float32, torch.float16, torch.bfloat16)
DIVIDENDS = torch.tensor([2, 1e6, -2, 3.5, -3.5, 0, 7.25, 1e10, -1e30, 3e38, 0.3, inf, -inf, nan])
DIVISORS = torch.tensor([0.1, -0.1, 1, -7, 3e38, inf, -inf, 0, nan])
NUMBERS = (0.1, -0.1, 2.0, -0.5, 2 * math.pi, 7, inf, -inf)
# Some are below the normal numbers of float32. Eager's own quotients are numbers of float32.
TINY = (1e-20, -1e-30, 1e-38, 1e-40, 2.0**-110, 2.0**-130)
SMALL_DIVIDENDS = torch.tensor([0.01, -0.003, 1e-20, -3e-31, 5e-38, 7.3e-39, -1e-40])
ANGLES = torch.tensor([0.0, -0.0, 2.0, -1.0, inf, -inf, nan])
TABLES = randn(2, 2, 8, 4)
# Some count from the end.
SOME, OTHERS = torch.tensor([0, -1, -3]), torch.tensor([-1, 2, -4]).int()
SEVEN = torch.tensor(7.0)
BEYOND_INT32 = 1 << 40
CAMERAS = tuple(torch.randint(256, (2, 4, 6, 3), dtype=torch.uint8) for _ in range(2))
PALETTE = torch.randint(256, (5, 3), dtype=torch.uint8)


def truncated(x, y):
    return torch.div(x, y, rounding_mode="trunc")


BITWISE = (torch.bitwise_and, torch.bitwise_or, torch.bitwise_xor)

ARITHMETIC = {
    **{
        f"{name} of {dtype}": (function, (DIVIDENDS.to(dtype), DIVISORS.to(dtype)))
        for dtype in FLOATS
        for name, function in {
            "remainders": lambda x, y: [x[:, None] % y, x[:, None].fmod(y), x[:, None] // y],
            "remainders by numbers": lambda x, y: [
                f + y[0] for n in NUMBERS for f in (x % n, x.fmod(n), x // n)
            ],
            "remainders of numbers": lambda x, y: [
                f + x[0] for n in NUMBERS for f in (n % y, n // y)
            ],
        }.items()
    },
    "tiny remainders": (
        lambda x, y: [
            *(x[:, None] % y / y, x[:, None].fmod(y) / y),
            *(x % n / n + x.fmod(n) / n for n in TINY),
        ],
        (SMALL_DIVIDENDS, torch.tensor(TINY)),
    ),
    "angles": (torch.atan2, (ANGLES[:, None].clone(), ANGLES)),
    "fractions": (lambda x: [torch.frac(x * 9), truncated(x, x + 1)], (X,)),
    "between a number and infinity": (
        lambda x: F.hardtanh(x, -1.0, inf) + F.hardtanh(x, -inf, 1.0),
        (ANGLES,),
    ),
    "bfloat16": (
        lambda x: [torch.trunc(x * 9), torch.log1p(x.abs() / 99)],
        (X.bfloat16(),),
    ),
    "int32": (
        lambda x, y: [x % 2.5, x % y, x.fmod(y), truncated(x, y), x**1.5],
        (SMALL, BY.int()),
    ),
    "functions of int32": (
        lambda x: [x.sigmoid(), x.abs().log1p(), x.sum(), x.prod(1), x.amax(1)],
        (SMALL,),
    ),
    "close int32": (lambda x: [-x, x.argmax(1)], (CLOSE,)),
    "int64": (
        lambda x: [
            *(x == 2.5, x >= 2.5, x.exp(), x.ceil(), x.clamp(-1.5, 2.5)),
            *(F.hardtanh(x, -3, 1), truncated(x, -3)),
        ],
        (WHOLE,),
    ),
    "numbers beyond int32": (
        lambda x: [
            *(x + BEYOND_INT32, x * 3 > -BEYOND_INT32, x % BEYOND_INT32),
            *(x.clamp(0, BEYOND_INT32), torch.where(x > 0, x * BEYOND_INT32, x)),
        ],
        (WHOLE,),
    ),
    "a number beyond int32 among floats": (lambda x: x * BEYOND_INT32, (X,)),
    "booleans": (
        lambda x, y: [x + y, x.clamp_max(y), x.sign(), x.amax(1)],
        (X > 0, X > 1),
    ),
    **{
        f"{name} of a number": (function, (torch.tensor(2.5), torch.tensor(-1.0)))
        for name, function in {
            "choice": lambda x, y: [torch.where(x > y, x, y), torch.atan2(x, y)],
            "sums": lambda x, y: x.sum() + y.mean() + x.prod(),
            "extremes": lambda x, y: torch.stack([x.amax(), y.max(), x.min()]),
            "softmax": lambda x, y: x.softmax(0) + y.log_softmax(-1),
            "order": lambda x, y: x.sort(0)[0] + y.topk(1)[0],
            "selection": lambda x, y: [
                x.index_select(0, (y + 1).long().reshape(1)),
                x.gather(0, (y + 1).long()),
            ],
        }.items()
    },
}

BITS = {
    f"bits of {dtype}": (
        lambda x: [
            *(
                f(x, n)
                for f in BITWISE
                for n in (0, 1, 6, 0b1011001, -1, -4, torch.iinfo(x.dtype).min)
            ),
            *(~x, (x > 0) ^ (x > 5), ~(x > 0)),
        ],
        (
            torch.tensor(
                [torch.iinfo(dtype).min, -7, -1, 0, 1, 6, torch.iinfo(dtype).max], dtype=dtype
            ),
        ),
    )
    for dtype in (torch.int32, torch.int64)
}

CHOICES = {
    "choices": (
        lambda c, *choices: [torch.where(c, x, x[0]) for x in choices],
        (X > 0, *((9 * X).to(kind) for kind in (*FLOATS[1:], torch.int32, torch.bool))),
    ),
    "a choice between dtypes": (lambda x, y: torch.where(y > 0, x, y), (WHOLE, X.half())),
    "a choice of numbers": (
        lambda x: [
            *(torch.where(x > 0, x, 0.5), torch.where(x > 0, 2.5, -1.0)),
            x.masked_fill(x > 0, -0.5),
        ],
        (X.bfloat16(),),
    ),
}

REDUCTIONS_AND_ORDER = {
    **{
        f"extremes of {name} and their positions": (
            lambda x: (*x.max(1), *x.min(-1, keepdim=True), x.min(0)[1]),
            (x,),
        )
        for name, x in {"floats": X, "bfloat16": X.bfloat16(), "int32": CLOSE}.items()
    },
    "a line": (
        lambda x: [
            *(*x.max(0), *x.min(-1), x.topk(3)[0], x.sort(0, descending=True)[0]),
            *(x.softmax(0), x.cumsum(0)),
        ],
        (LINE,),
    ),
    "whether a number is anything": (lambda x: torch.any(x[0, 0, 0]), (WHOLE.float(),)),
    "norms that are one number": (lambda x: x.norm(), (X,)),
    **{
        f"cumulative sums of {name}": (
            lambda x: [x.cumsum(0), x.cumsum(-1, dtype=torch.float32)],
            (x,),
        )
        for name, x in {
            "float32": X.clone(),
            "int64": WHOLE,
            "int32": SMALL,
            "booleans": X > 0,
            "float16": X.half(),
            "bfloat16": X.bfloat16(),
            "a number": torch.tensor(2.0),
        }.items()
    },
    "cumulative sums along others": (lambda x: [x.cumsum(1), x.cumsum(-2)], (X,)),
}

LAYERS = {
    **{
        f"bfloat16 {name}": (layer.bfloat16().eval(), (IMAGE.bfloat16(),))
        for name, layer in {
            "convolved": nn.Conv2d(4, 6, 3),
            "deconvolved": nn.ConvTranspose2d(4, 6, 3),
            "scaled": nn.BatchNorm2d(4),
        }.items()
    },
    "instance norms": (
        lambda x, w, b: [F.instance_norm(x), F.instance_norm(x, weight=w, bias=b)],
        (IMAGE, randn(4), randn(4)),
    ),
    **{
        f"logarithms of a softmax in {dtype}": (
            lambda x: x.log_softmax(1),
            ((X * 200).to(dtype),),
        )
        for dtype in FLOATS
    },
    "a line deconvolved by a given weight": (
        lambda x, w: F.conv_transpose1d(x, w, LINE[:6], stride=2, padding=2),
        (X, randn(4, 6, 3)),
    ),
    "a line deconvolved in groups": (
        lambda x, w: F.conv_transpose1d(x, w, stride=3, output_padding=1, padding=1, groups=2),
        (X, randn(4, 3, 3)),
    ),
    "a line deconvolved by a given weight, padded beyond its padding": (
        lambda x, w: F.conv_transpose1d(x, w, LINE[:6], stride=3, output_padding=2),
        (X, randn(4, 6, 3)),
    ),
    **{
        f"deconvolved: {name}": (nn.ConvTranspose2d(4, 6, 3, **how).eval(), (IMAGE,))
        for name, how in {
            "padded within its padding": {"stride": 2, "padding": 1, "output_padding": 1},
            "padded beyond its padding": {"stride": 3, "padding": (0, 1), "output_padding": 2},
            "without a bias": {"stride": 2, "output_padding": 1, "groups": 2, "bias": False},
            "with gaps": {"stride": (2, 1), "padding": 1, "dilation": (2, 3), "groups": 2},
        }.items()
    },
}


def attended(q, k, mask=None, **options):
    return F.scaled_dot_product_attention(q, k, k + 1, mask, **options)


ATTENTION = {
    "attention without a batch": (attended, (randn(3, 4, 8), KEYS, randn(4, 6))),
    **{
        f"causal, with {keys} keys for {queries} queries": (
            lambda q, k: attended(q, k, is_causal=True),
            (randn(1, 2, queries, 8), randn(1, 2, keys, 8)),
        )
        for queries, keys in ((3, 5), (5, 3))
    },
    "queries that see nothing": (
        lambda q, k, m, bias: [attended(q, k, m), attended(q, k, bias, scale=0.5)],
        (QUERIES, HEADS, MASK, BIAS),
    ),
    "queries that see nothing of a constant mask": (
        lambda q, k: attended(q, k, MASK),
        (QUERIES, HEADS),
    ),
    "queries in bfloat16 that see nothing": (
        attended,
        (QUERIES.bfloat16(), HEADS.bfloat16(), MASK),
    ),
}

# Kernel, stride, padding, dilation, whether a window over the edge counts.
LARGEST = (
    *((3, 2, 0, 1, True), (3, 2, 1, 1, True), (2, 3, 1, 1, True), ((2, 3), 2, 0, 1, True)),
    *((3, 2, 1, (1, 1), False), (3, 1, 1, 2), (2, (2, 1), 1, (2, 3), True), (1, 2, 0, 1, True)),
)
# Kernel, stride, padding, whether a window over the edge counts, as does the padding, divisor.
MEANS = (
    *((3, 2, 0, True), (3, 2, 1, True), (3, 2, 1, True, False), (2, 3, 1, True, False)),
    *((3, 2, 1, True, True, 5), ((2, 3), 2, 0, False, True, 3), (2, 2, 0, True, False)),
)
POOLING_AND_RESIZE = {
    "largest of windows": (lambda x: [F.max_pool2d(x, *how) for how in LARGEST], (IMAGE,)),
    "means of windows": (lambda x: [F.avg_pool2d(x, *how) for how in MEANS], (IMAGE,)),
    "windows without a batch": (
        lambda x: [F.max_pool2d(x, 3, 2, ceil_mode=True), F.max_pool2d(x, 2)],
        (IMAGE[0].half(),),
    ),
    "largest of an image": (
        lambda x: [
            F.max_pool2d(x, x.shape[-2:]),
            F.conv2d(x, torch.ones(2, x.shape[1], 2, 2)).amax(-2, True).amax(-1, True),
        ],
        (IMAGE,),
    ),
    "largest of the largest": (
        lambda x: [
            x.amax(-1, True).amax(0, True),
            x.amin([], True).amin(1, True),
            x.amax(1, True).amax(1),
            x.amax(1, True).amin(2, True),
        ],
        (IMAGE,),
    ),
    "windows of a volume": (
        lambda x: [
            F.max_pool3d(x, 2, 2, ceil_mode=True),
            F.avg_pool3d(x, 2, 2, ceil_mode=True, count_include_pad=False),
            F.adaptive_avg_pool3d(x, (2, 3, 3)),
        ],
        (randn(1, 2, 4, 7, 9),),
    ),
    "windows of a volume without a batch": (
        lambda x: [
            F.max_pool3d(x, 2, 1, 1),
            F.avg_pool3d(x, 2, padding=1, count_include_pad=False),
        ],
        (IMAGE,),
    ),
    "resized to sizes": (
        lambda x: [F.adaptive_avg_pool2d(x, (3, 5)), F.interpolate(x, (13, 11), mode="area")],
        (IMAGE,),
    ),
    "resized by factors": (
        lambda x: [
            F.interpolate(x, scale_factor=1.7, mode="bilinear"),
            F.interpolate(x, scale_factor=0.6, mode="bicubic"),
            F.interpolate(x, scale_factor=1.7),
            F.interpolate(x, scale_factor=2),
        ],
        (IMAGE,),
    ),
}


def rows_added(x, i, s, shape=(3, 6, 5)):
    return x.scatter_add(1, i[: shape[1]].view(1, -1, 1).expand(shape), s)


SCATTER_AND_INDEX = {
    "diagonals": (lambda x: [torch.diagonal(x, n, 2, 0) for n in (-4, -1, 0, 2)], (X,)),
    "looked up by known indices": (lambda w: F.embedding(ROWS, w), (X[0],)),
    "put behind a dimension": (put(None, 0, 1), (X, randn(3, 3), ROWS, ROWS)),
    "put around a dimension": (put(0, None, 1), (X, randn(3, 4), ROWS, ROWS)),
    "put a value behind a dimension": (put(None, 0, 1), (X, randn(3), ROWS, ROWS)),
    "put at a table": (put(0), (randn(9, 4), randn(2, 3, 4), torch.arange(6).reshape(2, 3))),
    "one index to select by": (lambda x, i: x.index_select(1, i), (X, torch.tensor(1))),
    "a larger source": (
        lambda x, i, s: x.scatter(2, i, s),
        (X, X.argsort(2)[:, :2, :3].contiguous(), randn(3, 4, 5)),
    ),
    **{
        f"{kind} of what is scattered": (
            lambda x, i, s, kinds=kinds: [
                x.scatter_reduce(1, i, s, kind, include_self=own)
                for kind in kinds
                for own in (True, False)
            ],
            (X, WHOLE.abs() % 4, X * 2),
        )
        for kind, kinds in {"sums": ("sum", "mean", "prod"), "extremes": ("amax", "amin")}.items()
    },
    "the largest of scattered integers": (
        lambda x, i, s: x.scatter_reduce(0, i, s, "amax"),
        (WHOLE, WHOLE.abs() % 3, WHOLE * 2),
    ),
    "scattered and added": (
        lambda x, i, s: x.scatter_add(2, i, s),
        (X, (WHOLE.abs() % 5)[:2, :3], X * 2),
    ),
    "rows scattered and added": (
        lambda x, i, s: [rows_added(x, i, s, shape) for shape in ((3, 6, 5), (3, 4, 5), (2, 6, 3))],
        (X, torch.tensor([3, 0, 0, 1, 3, 3]), randn(3, 6, 5)),
    ),
    "a column scattered and added": (
        lambda x, i, s: x.scatter_add(0, i[:, None].expand(2, 1), s),
        (randn(3, 2), torch.tensor([0, 1]), randn(2, 2)),
    ),
    "integers scattered and added": (
        rows_added,
        (WHOLE, torch.tensor([3, 0, 0, 1, 3, 3]), torch.cat([WHOLE, WHOLE[:, :2]], 1)),
    ),
    "added at an index": (
        lambda x, i, s, line: [
            aten.index_put(x, [i], s, True),
            aten.index_put(line, [i], s[:, 0, 0], True),
        ],
        (X, torch.tensor([2, 0, -1, 2]), randn(4, 4, 5), LINE),
    ),
    "added at an index in the middle": (
        lambda x, i, s: aten.index_put(x, [None, i], s, True),
        (X.half(), torch.tensor([2, 0, 2]), randn(3, 3, 5).half()),
    ),
    "a scattered integer": (lambda x, i: x.scatter(1, i, 2), (WHOLE, X.argsort(1))),
    "by two indices": (
        lambda x, i, j: [
            *(x[i, j], x[i, :, j], x[SOME, OTHERS], x[SOME, j], x[i[:, None], j]),
            *(put(None, 0)(x, SEVEN, j), put(None, 0)(x, SEVEN, OTHERS), put(0, 1)(x, SEVEN, i, j)),
        ],
        (X, SOME, OTHERS),
    ),
    **{
        f"put: {name}": (put(*[None] * dim, 0), (TABLES, values, torch.tensor(index)))
        for name, (dim, index, values) in {
            # Without a batch: laid over the wrong dimensions, whether or not their sizes agree.
            "rows for all batches": (2, [5], randn(2, 1, 4)),
            "as many rows as batches and heads": (2, [3, 1], randn(2, 2, 4)),
            "the last dimensions": (1, [1, 0], randn(8, 4)),
            "one value": (2, [3, 1], randn(1)),
            "a number": (2, [3, 1], SEVEN),
            "all of them": (2, [3, 1], randn(2, 2, 2, 4)),
            "one row for two positions": (2, [3, 1], randn(2, 2, 1, 4)),
            "an index without dimensions": (2, 5, randn(2, 2, 4)),
            "an index without dimensions, broadcast": (1, 1, randn(4)),
            "the first dimension": (0, [1], randn(2, 8, 4)),
        }.items()
    },
    "put in a cache of one batch": (
        put(None, None, 0),
        (TABLES[:1], randn(2, 1, 4), torch.tensor([5])),
    ),
}

UINT8 = {
    "bytes moved": (
        lambda a, b: [
            *(a[:, 1:3].permute(0, 3, 1, 2).float(), F.pad(a, (0, 0, 1, 2), value=114)),
            *(torch.cat([a, b.flip(2)], 1), torch.stack([a, b]), a.repeat(1, 2, 1, 1)),
            *(F.interpolate(a.permute(0, 3, 1, 2), scale_factor=2.0), a[..., [2, 1, 0]]),
            *(PALETTE[a.long() % 5], torch.slice_scatter(torch.full_like(a, 7), b[:, :2], 1, 1, 3)),
        ],
        CAMERAS,
    ),
    "bytes computed": (
        lambda a, b: [
            *(a + b, a - b, a * b, -a, 255 - a, a * 3, torch.add(a, b, alpha=2)),
            *(
                a / 255,
                a * 0.3,
                a - torch.tensor([0.5, 1, 2]),
                a + (WHOLE[0, 0, :3] + BEYOND_INT32),
            ),
            *(a > b, a <= 3, a < 1.5, a.maximum(b), a.clamp(10, 99), a.clamp(max=9.5)),
            *(torch.where(a > b, a, 0), a.masked_fill(a > 3, 7), a.logical_not()),
        ],
        CAMERAS,
    ),
    "extremes and sums of bytes": (
        lambda a, b: [
            *(a.amax(1), a.max(), *a.min(2), a.argmax(2), F.max_pool2d(b, 2)),
            *(a.sum(1), a.sum(), a.mean((1, 2), dtype=torch.float32)),
        ],
        CAMERAS,
    ),
    "bytes cast": (
        lambda a: [a.half(), a.bfloat16(), a.int(), a.long(), a.bool(), a.flip(1).to(a.dtype)],
        CAMERAS[:1],
    ),
    # Cut off, then modulo 256.
    **{
        f"{dtype} cast to bytes": (
            lambda x: [x.to(torch.uint8), (x > 0).to(torch.uint8) * 255, x.sum().to(torch.uint8)],
            (numbers.to(dtype),),
        )
        for dtype, numbers in {
            **dict.fromkeys(
                FLOATS, torch.tensor([-0.5, 254.9, 255.9, -1, 256, 300.7, 3e38, inf, -inf, nan])
            ),
            **dict.fromkeys((torch.int32, torch.int64), torch.tensor([-1, 255, 256, -(1 << 30)])),
        }.items()
    },
}

CASES = {
    **(ARITHMETIC | BITS | CHOICES | REDUCTIONS_AND_ORDER),
    **(LAYERS | ATTENTION | POOLING_AND_RESIZE | SCATTER_AND_INDEX | UINT8),
}
BUILT = (
    *("booleans", "int32", "functions of int32", "close int32", "int64", "numbers beyond int32"),
    *("choices", "a line", "instance norms"),
    *("cumulative sums of booleans", "extremes of int32 and their positions"),
    *("a line deconvolved by a given weight", "a line deconvolved in groups"),
    *("deconvolved: padded beyond its padding", "deconvolved: with gaps", "bits of torch.int64"),
    *("attention without a batch", "queries that see nothing", "resized by factors"),
    *("largest of windows", "means of windows", "windows of a volume"),
    *("put behind a dimension", "by two indices", "put in a cache of one batch"),
    *("put: an index without dimensions, broadcast", "bytes moved", "bytes computed"),
    *("extremes and sums of bytes", "torch.float32 cast to bytes", "torch.int64 cast to bytes"),
)


@pytest.mark.parametrize("case", sampled(CASES, 5))
def test_the_network_equals_eager(case):
    assert_network_equals_eager(*CASES[case])


@pytest.mark.parametrize("case", sampled(BUILT))
def test_an_engine_is_built(case):
    assert_one_engine(*CASES[case])
