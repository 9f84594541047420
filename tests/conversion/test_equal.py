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

ARITHMETIC = {
    "remainder of integers by a float": (lambda x: torch.remainder(x, 2.5), (SMALL,)),
    "remainder of bfloat16": (torch.remainder, (X.bfloat16() * 9, X.bfloat16() + 1)),
    "remainder of float16 by a number": (lambda x: torch.fmod(x, 0.7), (X.half() * 9,)),
    **{
        f"{name} of {dtype}": (function, (DIVIDENDS.to(dtype), DIVISORS.to(dtype)))
        for dtype in (torch.float32, torch.float16, torch.bfloat16)
        for name, function in {
            "remainder": lambda x, y: torch.remainder(x[:, None], y),
            "fmod": lambda x, y: torch.fmod(x[:, None], y),
            "remainder by numbers": lambda x, y: [x % n + y[0] for n in NUMBERS],
            "fmod by numbers": lambda x, y: [x.fmod(n) + y[0] for n in NUMBERS],
            "remainder of numbers": lambda x, y: [n % y + x[0] for n in NUMBERS],
            "quotient rounded down": lambda x, y: x[:, None] // y,
            "quotient by numbers": lambda x, y: [x // n + y[0] for n in NUMBERS],
            "quotient of numbers": lambda x, y: [n // y + x[0] for n in NUMBERS],
        }.items()
    },
    "tiny remainders": (
        lambda x, y: [x[:, None] % y / y, x[:, None].fmod(y) / y],
        (SMALL_DIVIDENDS, torch.tensor(TINY)),
    ),
    "tiny remainders by numbers": (
        lambda x: [x % n / n + x.fmod(n) / n for n in TINY],
        (SMALL_DIVIDENDS,),
    ),
    "angles": (torch.atan2, (ANGLES[:, None].clone(), ANGLES)),
    "angles of integers": (
        lambda y, x: torch.atan2(y, x) + 1,
        (torch.arange(-2, 3)[:, None], torch.arange(-2, 3)),
    ),
    "remainder of int32": (torch.remainder, (SMALL, BY.int())),
    "fmod of int32": (torch.fmod, (SMALL, BY.int())),
    "integers to a float power": (lambda x: torch.pow(x, 1.5), (SMALL,)),
    "integers equal to a float": (lambda x: x == 2.5, (WHOLE,)),
    "integers at least a float": (lambda x: x >= 2.5, (WHOLE,)),
    "bfloat16 truncated": (torch.trunc, (X.bfloat16() * 9,)),
    "the part behind the point": (torch.frac, (X * 9,)),
    "truncated quotient": (lambda x, y: torch.div(x, y, rounding_mode="trunc"), (X, X + 1)),
    "truncated quotient of int32": (
        lambda x, y: torch.div(x, y, rounding_mode="trunc"),
        (SMALL, BY.int()),
    ),
    "truncated quotient by a number": (
        lambda x: torch.div(x, -3, rounding_mode="trunc"),
        (WHOLE,),
    ),
    "exponentials of int64": (torch.exp, (WHOLE,)),
    "sigmoids of int32": (torch.sigmoid, (SMALL,)),
    "int64 rounded up": (torch.ceil, (WHOLE,)),
    "booleans added": (torch.add, (X > 0, X > 1)),
    "booleans at most others": (lambda x, y: x.clamp_max(y), (X > 0, X > 1)),
    "integers between floats": (lambda x: x.clamp(-1.5, 2.5), (WHOLE,)),
    "integers below the default bound": (
        lambda x: torch.nn.functional.hardtanh(x, -3, 1),
        (WHOLE,),
    ),
    "between a number and infinity": (
        lambda x: (
            torch.nn.functional.hardtanh(x, -1.0, inf) + torch.nn.functional.hardtanh(x, -inf, 1.0)
        ),
        (ANGLES,),
    ),
    "negative of int32": (torch.neg, (CLOSE,)),
    "logarithms of bfloat16 above 1": (torch.log1p, (X.bfloat16().abs() / 99,)),
    "logarithms of integers above 1": (torch.log1p, (SMALL.abs(),)),
    **{
        f"{name} of a number": (function, (torch.tensor(2.5), torch.tensor(-1.0)))
        for name, function in {
            "choice": lambda x, y: torch.where(x > y, x, y),
            "angle": torch.atan2,
            "sums": lambda x, y: x.sum() + y.mean() + x.prod(),
            "extremes": lambda x, y: torch.stack([x.amax(), y.max(), x.min()]),
            "softmax": lambda x, y: x.softmax(0) + y.log_softmax(-1),
            "order": lambda x, y: x.sort(0)[0] + y.topk(1)[0],
            "selection": lambda x, y: x.index_select(0, (y + 1).long().reshape(1)),
            "gathering": lambda x, y: x.gather(0, (y + 1).long()),
        }.items()
    },
    "signs of booleans": (torch.sign, (X > 0,)),
}

WHERE_AND_LARGE_NUMBERS = {
    **{
        f"a choice of {dtype}": (torch.where, (X > 0, (9 * X).to(dtype), (9 * X[0]).to(dtype)))
        for dtype in (torch.bfloat16, torch.float16, torch.int32, torch.bool)
    },
    "a number beyond int32 added": (lambda x: x + (1 << 40), (WHOLE,)),
    "a number beyond int32 compared": (lambda x: x * 3 > -(1 << 40), (WHOLE,)),
    "a number beyond int32 to divide by": (lambda x: x % (1 << 40), (WHOLE,)),
    "a number beyond int32 among floats": (lambda x: x * (1 << 40), (X,)),
    "bounds beyond int32": (lambda x: x.clamp(0, 1 << 40), (WHOLE,)),
    "a choice of int64": (lambda x: torch.where(x > 0, x * (1 << 40), x), (WHOLE,)),
    "a choice between dtypes": (lambda x, y: torch.where(y > 0, x, y), (WHOLE, X.half())),
    "a choice of a number": (lambda x: torch.where(x > 0, x, 0.5), (X.bfloat16(),)),
    "a choice of numbers alone": (lambda x: torch.where(x > 0, 2.5, -1.0), (X.bfloat16(),)),
    "half of a mask": (lambda x: x.masked_fill(x > 0, -0.5), (X.bfloat16(),)),
}

REDUCTIONS_AND_ORDER = {
    "sum of int32": (lambda x: x.sum(), (SMALL,)),
    "product of int32": (lambda x: x.prod(1), (SMALL,)),
    "largest of int32": (lambda x: x.amax(1), (SMALL,)),
    "place of the largest int32": (lambda x: x.argmax(1), (CLOSE,)),
    **{
        f"extremes of {name} and their positions": (
            lambda x: (*x.max(1), *x.min(-1, keepdim=True), x.min(0)[1]),
            (x,),
        )
        for name, x in {"floats": X, "bfloat16": X.bfloat16(), "int32": CLOSE}.items()
    },
    "extremes of a line and their positions": (lambda x: (*x.max(0), *x.min(-1)), (LINE,)),
    "largest of booleans": (lambda x: x.amax(1), (X > 0,)),
    "whether a number is anything": (lambda x: torch.any(x[0, 0, 0]), (WHOLE.float(),)),
    "largest of a line": (lambda x: x.topk(3)[0], (LINE,)),
    "a line in order": (lambda x: x.sort(0, descending=True)[0], (LINE,)),
    "cumulative sums": (lambda x: x.cumsum(1), (X,)),
    "cumulative sums along a negative dimension": (lambda x: x.cumsum(-2), (X,)),
    "cumulative sums of integers in float32": (
        lambda x: x.cumsum(1, dtype=torch.float32),
        (WHOLE,),
    ),
    **{
        f"cumulative sums of {name}": (lambda x: x.cumsum(0), (x,))
        for name, x in {
            "int64": WHOLE,
            "int32": SMALL,
            "booleans": X > 0,
            "float16": X.half(),
            "bfloat16": X.bfloat16(),
            "a line": LINE,
            "a number": torch.tensor(2.0),
        }.items()
    },
}

LAYERS = {
    "bfloat16 convolved": (nn.Conv2d(4, 6, 3).bfloat16(), (IMAGE.bfloat16(),)),
    "bfloat16 deconvolved": (nn.ConvTranspose2d(4, 6, 3).bfloat16(), (IMAGE.bfloat16(),)),
    "bfloat16 scaled": (nn.BatchNorm2d(4).bfloat16().eval(), (IMAGE.bfloat16(),)),
    "instance norm": (lambda x: F.instance_norm(x), (IMAGE,)),
    "instance norm with weights": (
        lambda x, w, b: F.instance_norm(x, weight=w, bias=b),
        (IMAGE, randn(4), randn(4)),
    ),
    "statistics of a layer norm": (
        lambda x: aten.native_layer_norm(x, [4, 5], None, None, 0.1),
        (X,),
    ),
    **{
        f"logarithms of a softmax in {dtype}": (
            lambda x: x.log_softmax(1),
            ((X * 200).to(dtype),),
        )
        for dtype in (torch.float32, torch.float16, torch.bfloat16)
    },
    "softmax of a line": (lambda x: x.softmax(0), (LINE,)),
    "a norm that is one number": (lambda x: x.norm(), (X,)),
    "a line deconvolved by a given weight": (
        lambda x, w: F.conv_transpose1d(x, w, LINE[:6], stride=2, padding=2),
        (X, randn(4, 6, 3)),
    ),
    "a line deconvolved in groups": (
        lambda x, w: F.conv_transpose1d(x, w, stride=3, output_padding=1, padding=1, groups=2),
        (X, randn(4, 3, 3)),
    ),
}

ATTENTION = {
    "attention without a batch": (
        F.scaled_dot_product_attention,
        (randn(3, 4, 8), KEYS, KEYS + 1, randn(4, 6)),
    ),
    "causal, with more keys than queries": (
        lambda q, k: F.scaled_dot_product_attention(q, k, k + 1, is_causal=True),
        (randn(1, 2, 3, 8), randn(1, 2, 5, 8)),
    ),
    "causal, with more queries than keys": (
        lambda q, k: F.scaled_dot_product_attention(q, k, k + 1, is_causal=True),
        (randn(1, 2, 5, 8), randn(1, 2, 3, 8)),
    ),
    "queries that see nothing": (
        lambda q, k, m: F.scaled_dot_product_attention(q, k, k + 1, m),
        (QUERIES, HEADS, MASK),
    ),
    "queries that a bias leaves nothing": (
        lambda q, k, m: F.scaled_dot_product_attention(q, k, k + 1, attn_mask=m, scale=0.5),
        (QUERIES, HEADS, BIAS),
    ),
    "queries that see nothing of a constant mask": (
        lambda q, k: F.scaled_dot_product_attention(q, k, k + 1, MASK),
        (QUERIES, HEADS),
    ),
    "queries in bfloat16 that see nothing": (
        lambda q, k, m: F.scaled_dot_product_attention(q, k, k + 1, m),
        (QUERIES.bfloat16(), HEADS.bfloat16(), MASK),
    ),
}

POOLING_AND_RESIZE = {
    **{
        f"largest of windows {options}": (
            lambda x, options=options: F.max_pool2d(x, *options),
            (IMAGE,),
        )
        for options in (
            *((3, 2, 0, 1, True), (3, 2, 1, 1, True), (2, 3, 1, 1, True), ((2, 3), 2, 0, 1, True)),
            *(
                (3, 2, 1, (1, 1), False),
                (3, 1, 1, 2),
                (2, (2, 1), 1, (2, 3), True),
                (1, 2, 0, 1, True),
            ),
        )
    },
    "largest of windows without a batch": (
        lambda x: F.max_pool2d(x, 3, 2, ceil_mode=True),
        (IMAGE[0].half(),),
    ),
    "largest of windows of a volume": (
        lambda x: F.max_pool3d(x, 2, 2, ceil_mode=True),
        (randn(1, 2, 5, 7, 9),),
    ),
    **{
        f"means of windows {options}": (
            lambda x, options=options: F.avg_pool2d(x, *options),
            (IMAGE,),
        )
        for options in (
            *((3, 2, 0, True), (3, 2, 1, True), (3, 2, 1, True, False), (2, 3, 1, True, False)),
            *((3, 2, 1, True, True, 5), ((2, 3), 2, 0, False, True, 3), (2, 2, 0, True, False)),
        )
    },
    "means of windows of a volume": (
        lambda x: F.avg_pool3d(x, 2, 2, ceil_mode=True, count_include_pad=False),
        (randn(1, 2, 5, 7, 9),),
    ),
    "adaptive average": (lambda x: F.adaptive_avg_pool2d(x, (3, 5)), (IMAGE,)),
    "adaptive average of a volume": (
        lambda x: F.adaptive_avg_pool3d(x, (2, 3, 4)),
        (randn(1, 2, 4, 5, 6),),
    ),
    "area": (lambda x: F.interpolate(x, (13, 11), mode="area"), (IMAGE,)),
    "linear by a factor": (
        lambda x: F.interpolate(x, scale_factor=1.7, mode="bilinear"),
        (IMAGE,),
    ),
    "cubic by a factor": (lambda x: F.interpolate(x, scale_factor=0.6, mode="bicubic"), (IMAGE,)),
    "nearest by a factor": (lambda x: F.interpolate(x, scale_factor=1.7), (IMAGE,)),
    "nearest by a whole factor": (lambda x: F.interpolate(x, scale_factor=2), (IMAGE,)),
    "pooling without a batch": (lambda x: F.max_pool2d(x, 2), (IMAGE[0],)),
    "pooling of a volume without a batch": (lambda x: F.max_pool3d(x, 2, 1, 1), (IMAGE,)),
    "averages of a volume without a batch": (
        lambda x: F.avg_pool3d(x, 2, padding=1, count_include_pad=False),
        (IMAGE,),
    ),
}

SCATTER_AND_INDEX = {
    **{
        f"a diagonal {offset} to the right": (
            lambda x, offset=offset: torch.diagonal(x, offset, 2, 0),
            (X,),
        )
        for offset in (-4, -1, 0, 2)
    },
    "looked up by known indices": (lambda w: F.embedding(ROWS, w), (X[0],)),
    "put behind a dimension": (put(None, 0, 1), (X, randn(3, 3), ROWS, ROWS)),
    "one number put by a mask": (
        lambda x, n: aten.index_put(x, [x > 1], n),
        (X, torch.tensor(0.5)),
    ),
    "one number put in rows by a mask": (
        lambda x, n, m: aten.index_put(x, [m], n),
        (WHOLE, torch.tensor([7]), X[..., 0] > 0),
    ),
    "put around a dimension": (put(0, None, 1), (X, randn(3, 4), ROWS, ROWS)),
    "put at a table": (put(0), (randn(9, 4), randn(2, 3, 4), torch.arange(6).reshape(2, 3))),
    "put a value behind a dimension": (put(None, 0, 1), (X, randn(3), ROWS, ROWS)),
    "one index to select by": (lambda x, i: x.index_select(1, i), (X, torch.tensor(1))),
    "a larger source": (
        lambda x, i, s: x.scatter(2, i, s),
        (X, X.argsort(2)[:, :2, :3].contiguous(), randn(3, 4, 5)),
    ),
    **{
        f"the {reduce} of what is scattered, {'with' if own else 'without'} what is there": (
            lambda x, i, s, reduce=reduce, own=own: x.scatter_reduce(
                1, i, s, reduce, include_self=own
            ),
            (X, WHOLE.abs() % 4, X * 2),
        )
        for reduce in ("sum", "mean", "prod", "amax", "amin")
        for own in (True, False)
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
        lambda x, i, s: x.scatter_add(1, i.view(1, 6, 1).expand(3, 6, 5), s),
        (X, torch.tensor([3, 0, 0, 1, 3, 3]), randn(3, 6, 5)),
    ),
    "some rows scattered and added": (
        lambda x, i, s: x.scatter_add(1, i[:4].view(1, 4, 1).expand(3, 4, 5), s),
        (X, torch.tensor([3, 0, 0, 1, 3, 3]), randn(3, 6, 5)),
    ),
    "a part of rows scattered and added": (
        lambda x, i, s: x.scatter_add(1, i.view(1, 6, 1).expand(2, 6, 3), s),
        (X, torch.tensor([3, 0, 0, 1, 3, 3]), randn(2, 6, 5)),
    ),
    "a column scattered and added": (
        lambda x, i, s: x.scatter_add(0, i[:, None].expand(2, 1), s),
        (randn(3, 2), torch.tensor([0, 1]), randn(2, 2)),
    ),
    "integers scattered and added": (
        lambda x, i, s: x.scatter_add(1, i.view(1, 6, 1).expand(3, 6, 5), s),
        (WHOLE, torch.tensor([3, 0, 0, 1, 3, 3]), torch.cat([WHOLE, WHOLE[:, :2]], 1)),
    ),
    "added at an index": (
        lambda x, i, s: aten.index_put(x, [i], s, True),
        (X, torch.tensor([2, 0, -1, 2]), randn(4, 4, 5)),
    ),
    "numbers added at an index": (
        lambda x, i, s: aten.index_put(x, [i], s, True),
        (LINE, torch.tensor([2, 0, -1, 2]), randn(4)),
    ),
    "added at an index in the middle": (
        lambda x, i, s: aten.index_put(x, [None, i], s, True),
        (X.half(), torch.tensor([2, 0, 2]), randn(3, 3, 5).half()),
    ),
    "a scattered integer": (lambda x, i: x.scatter(1, i, 2), (WHOLE, X.argsort(1))),
    "by two indices": (lambda x, i, j: x[i, j], (X, SOME, OTHERS)),
    "by two indices around a dimension": (lambda x, i, j: x[i, :, j], (X, SOME, OTHERS)),
    "by two known indices": (lambda x: x[SOME, OTHERS], (X,)),
    "by a known index and another": (lambda x, j: x[SOME, j], (X, OTHERS)),
    "by two indices that broadcast": (lambda x, i, j: x[i[:, None], j], (X, SOME, OTHERS)),
    "a number put at one index": (lambda x, j: put(None, 0)(x, SEVEN, j), (X, OTHERS)),
    "a number put at a known index": (lambda x: put(None, 0)(x, SEVEN, OTHERS), (X,)),
    "a number put at two indices": (lambda x, *ij: put(0, 1)(x, SEVEN, *ij), (X, SOME, OTHERS)),
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

CASES = {
    **ARITHMETIC,
    **WHERE_AND_LARGE_NUMBERS,
    **REDUCTIONS_AND_ORDER,
    **LAYERS,
    **ATTENTION,
    **POOLING_AND_RESIZE,
    **SCATTER_AND_INDEX,
}
BUILT = (
    "booleans added",
    "exponentials of int64",
    "truncated quotient of int32",
    "a number beyond int32 added",
    "bounds beyond int32",
    "a choice of int64",
    "a choice of torch.bfloat16",
    "a choice of torch.bool",
    "largest of int32",
    "product of int32",
    "place of the largest int32",
    "a line in order",
    "cumulative sums of booleans",
    "extremes of int32 and their positions",
    "instance norm",
    "a line deconvolved by a given weight",
    "a line deconvolved in groups",
    "attention without a batch",
    "queries that see nothing",
    "queries that a bias leaves nothing",
    "nearest by a factor",
    "largest of windows (3, 2, 1, 1, True)",
    "largest of windows (3, 1, 1, 2)",
    "means of windows (3, 2, 1, True, False)",
    "means of windows of a volume",
    "largest of windows of a volume",
    "put behind a dimension",
    "by two known indices",
    "put: an index without dimensions, broadcast",
    "put in a cache of one batch",
)


@pytest.mark.parametrize("case", CASES)
def test_the_network_equals_eager(case):
    assert_network_equals_eager(*CASES[case])


@pytest.mark.parametrize("case", sampled(BUILT))
def test_an_engine_is_built(case):
    assert_one_engine(*CASES[case])
