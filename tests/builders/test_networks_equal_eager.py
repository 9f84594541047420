"""The networks that TensorRT is handed compute what eager computes.

They are evaluated on the CPU (tests/network_evaluator); no engine runs. Most cases here were wrong,
or could not be built, with Torch-TensorRT's converters alone.
"""

from __future__ import annotations

import pytest
import torch
from executorch.runtime import Runtime
from torch import nn
from torch.export import Dim
from torch.nn import functional as F

from tests.builders.test_converters import request
from tests.lowering_helpers import blobs, lower
from tests.models import Function
from tests.network_evaluator.comparison import ComparingBuilder, Verdict, compare, difference
from tests.simulated_gpus import load_runtime
from trt_et import TensorRTPartitioner
from trt_et.builders import BuildOptions
from trt_et.conversion import network
from trt_et.conversion.support import make_refusal
from trt_et.errors import BuilderError

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


CASES = {
    "remainder of integers by a float": (lambda x: torch.remainder(x, 2.5), (SMALL,)),
    "remainder of bfloat16": (torch.remainder, (X.bfloat16() * 9, X.bfloat16() + 1)),
    "remainder of float16 by a number": (lambda x: torch.fmod(x, 0.7), (X.half() * 9,)),
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
    "sum of int32": (lambda x: x.sum(), (SMALL,)),
    "product of int32": (lambda x: x.prod(1), (SMALL,)),
    "largest of int32": (lambda x: x.amax(1), (SMALL,)),
    "negative of int32": (torch.neg, (CLOSE,)),
    "place of the largest int32": (lambda x: x.argmax(1), (CLOSE,)),
    **{
        f"extremes of {name} and their places": (
            lambda x: (*x.max(1), *x.min(-1, keepdim=True), x.min(0)[1]),
            (x,),
        )
        for name, x in {"floats": X, "bfloat16": X.bfloat16(), "int32": CLOSE}.items()
    },
    "extremes of a line and their places": (lambda x: (*x.max(0), *x.min(-1)), (LINE,)),
    **{
        f"a diagonal {offset} to the right": (
            lambda x, offset=offset: torch.diagonal(x, offset, 2, 0),
            (X,),
        )
        for offset in (-4, -1, 0, 2)
    },
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
    "largest of booleans": (lambda x: x.amax(1), (X > 0,)),
    "bfloat16 convolved": (nn.Conv2d(4, 6, 3).bfloat16(), (IMAGE.bfloat16(),)),
    "bfloat16 deconvolved": (nn.ConvTranspose2d(4, 6, 3).bfloat16(), (IMAGE.bfloat16(),)),
    "bfloat16 scaled": (nn.BatchNorm2d(4).bfloat16().eval(), (IMAGE.bfloat16(),)),
    "logarithms of bfloat16 above 1": (torch.log1p, (X.bfloat16().abs() / 99,)),
    "logarithms of integers above 1": (torch.log1p, (SMALL.abs(),)),
    "whether a number is anything": (lambda x: torch.any(x[0, 0, 0]), (WHOLE.float(),)),
    "looked up by known indices": (lambda w: F.embedding(ROWS, w), (X[0],)),
    "instance norm": (lambda x: F.instance_norm(x), (IMAGE,)),
    "instance norm with weights": (
        lambda x, w, b: F.instance_norm(x, weight=w, bias=b),
        (IMAGE, randn(4), randn(4)),
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
    "attention without a batch": (
        F.scaled_dot_product_attention,
        (randn(3, 4, 8), KEYS, KEYS + 1, randn(4, 6)),
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
    "signs of booleans": (torch.sign, (X > 0,)),
    "softmax of a line": (lambda x: x.softmax(0), (LINE,)),
    "largest of a line": (lambda x: x.topk(3)[0], (LINE,)),
    "a line in order": (lambda x: x.sort(0, descending=True)[0], (LINE,)),
    "pooling without a batch": (lambda x: F.max_pool2d(x, 2), (IMAGE[0],)),
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


@pytest.mark.parametrize("case", CASES)
def test_the_network_of_an_operator_equals_eager(case):
    function, inputs = CASES[case]
    verdict = compare(request(Function(function), *inputs), *inputs)
    assert verdict.outcome == "equal", verdict


BUILT = (
    *("booleans added", "exponentials of int64", "largest of int32", "product of int32"),
    *("place of the largest int32", "put behind a dimension", "attention without a batch"),
    *("truncated quotient of int32", "a line in order", "instance norm", "nearest by a factor"),
    *("a number beyond int32 added", "bounds beyond int32"),
    *("a choice of int64", "a choice of torch.bfloat16", "a choice of torch.bool"),
    *("queries that see nothing", "queries that a bias leaves nothing"),
    *("a line deconvolved by a given weight", "a line deconvolved in groups"),
    *("largest of windows (3, 2, 1, 1, True)", "largest of windows (3, 1, 1, 2)"),
    *("means of windows (3, 2, 1, True, False)", "means of windows of a volume"),
    *("largest of windows of a volume", "extremes of int32 and their places"),
)


@pytest.mark.parametrize("case", BUILT)
def test_an_engine_is_built(case):
    function, inputs = CASES[case]
    program = torch.export.export(Function(function), inputs)
    assert len(blobs(lower(program, builder="tensorrt_rtx"))) == 1


BOOK = randn(1, 30)


def _clipped(x):
    y = x * 2
    y[y > 1] = 1.0
    y[y.sum(1) < 0] = -1.0
    return y + 1


OF_ANY_SIZE = {
    "repeated for every row": lambda x: torch.arange(x.shape[1]).repeat(x.shape[0], 1) + x,
    "repeated along a dimension in front": lambda x: (x + 1).repeat(x.shape[1], 2, 1),
    "repeated as often as both sizes": lambda x: x.repeat(1, x.shape[0] + x.shape[1]) * 2,
    "repeated by a number": lambda x: x.repeat(3, 1, 2) * 2,
    "looked up in every row": lambda x: (
        BOOK.expand(x.shape[0], -1).gather(1, (x * 9).long() % 30) + x
    ),
    "gathered along a dynamic dimension": lambda x: x.gather(0, (x[:1] > 0).long()) + 1,
    "logarithms above 1": lambda x: torch.log1p(x.abs()) + 1,
    "averaged to one number": lambda x: F.adaptive_avg_pool2d(x[None], 1) * 2,
    "the largest and their places": lambda x: x.max(1)[0] * x.max(1)[1] + x.min(0)[1].sum(),
    "a diagonal of matrices of a known size": lambda x: torch.diagonal(
        (x[:, None, :, None] * BOOK[0, :12].reshape(3, 1, 4)).sin(), 1, 1, -1
    ),
    "clipped by a mask": _clipped,
    "rows added": lambda x: torch.zeros(4, x.shape[1]).index_add(
        0, (torch.arange(x.shape[0]) % 4), x * 2
    ),
    "rows added to as many": lambda x: (x * 2).index_add(0, torch.arange(x.shape[0]) // 2, x.sin()),
    "rows scattered": lambda x: (x * 2).scatter_add(
        0, (torch.arange(x.shape[0]) // 2)[:, None].expand(x.shape), x.sin()
    ),
    "means of windows over the edge": lambda x: F.avg_pool2d(
        x[:, :, None, None] * BOOK.reshape(5, 6), 2, 2, ceil_mode=True
    ),
    "the largest of windows without gaps": lambda x: aten.max_pool2d(
        x[None, None] * 2, [2, 2], [1, 1], [1, 1], [1, 1]
    ),
    "the largest of windows over the edge": lambda x: F.max_pool2d(
        (x.sum(1)[:, None, None, None] * BOOK.reshape(5, 6)), 2, 2, ceil_mode=True
    ),
    "as many lines averaged": lambda x: F.adaptive_avg_pool1d(x[:, :, None] * BOOK[0], 1).sin(),
    "averaged by lines": lambda x: F.adaptive_avg_pool1d(x[None], 1) * 2,
    **{
        f"resized to its other size, {mode}": lambda x, mode=mode: (
            F.interpolate((x * 2)[None, None], (x.shape[1], x.shape[0] + 1), mode=mode) * 2
        )
        for mode in ("nearest", "bilinear", "bicubic")
    },
    "resized to a part known, corners aligned": lambda x: (
        F.interpolate(x[None, None], (x.shape[1] * 2, 7), mode="bilinear", align_corners=True) * 2
    ),
    "resized along a line": lambda x: F.interpolate(x[None], x.shape[0] * 3, mode="linear") * 2,
    "flattened in the middle": lambda x: (
        (x[:, :, None] * BOOK[0]).flatten(1).sin().flatten(0).cos()
    ),
}


def test_sizes_are_read_off_multiples_of_them():
    dynamic = {0: 3 * Dim("n", min=1, max=4), 1: 2 * Dim("m", min=1, max=4) + 1}

    def function(x):
        return x.reshape(x.shape[0] // 3, 3, -1).sum(1) * torch.zeros(x.shape[1] // 2 + 1).sum()

    program = torch.export.export(Function(function), (randn(6, 5),), dynamic_shapes=((dynamic,),))
    verdicts: list[Verdict] = []
    lower(program, partitioner=TensorRTPartitioner(builder=ComparingBuilder(verdicts)))
    assert [verdict.outcome for verdict in verdicts] == ["equal"], verdicts


@pytest.mark.parametrize("case", OF_ANY_SIZE)
def test_one_network_equals_eager_at_every_size(case):
    dynamic = {0: Dim("rows", min=2, max=8), 1: Dim("columns", min=2, max=9)}
    program = torch.export.export(
        Function(OF_ANY_SIZE[case]), (randn(3, 5),), dynamic_shapes=((dynamic,),)
    )
    verdicts: list[Verdict] = []
    partitioner = TensorRTPartitioner(builder=ComparingBuilder(verdicts))
    lower(program, partitioner=partitioner)
    assert [verdict.outcome for verdict in verdicts] == ["equal"], verdicts
    assert all(reason.endswith("not a tensor") for _, _, reason in partitioner.report.left_out)
    assert len(blobs(lower(program, builder="tensorrt_rtx"))) == 1


class Transposed(nn.Module):
    def __init__(self, **options) -> None:
        super().__init__()
        self.layer = nn.ConvTranspose2d(4, 6, 3, stride=3, **options)

    def forward(self, x):
        return self.layer(x)


def test_an_output_padded_beyond_the_padding_stays_on_the_cpu():
    for model, engines in (
        (Transposed(output_padding=1), 0),
        (Transposed(padding=1, output_padding=1), 1),
    ):
        program = torch.export.export(model.eval(), (IMAGE,))
        assert len(blobs(lower(program, builder="tensorrt_rtx"))) == engines
    partitioner = TensorRTPartitioner(builder="tensorrt_rtx")
    program = torch.export.export(Transposed(output_padding=1).eval(), (IMAGE,))
    lower(program, partitioner=partitioner)
    assert "transposed convolution" in str(partitioner.report.left_out)


def test_pooling_a_dynamic_number_of_channels_stays_on_the_cpu():
    dynamic = (({1: Dim("channels", min=2, max=8)},),)
    model = Function(lambda x: F.max_pool2d(x * 2, 2))
    program = torch.export.export(model, (IMAGE,), dynamic_shapes=dynamic)
    partitioner = TensorRTPartitioner(builder="tensorrt_rtx")
    assert len(blobs(lower(program, partitioner=partitioner))) == 1
    assert "a dynamic number of channels" in str(partitioner.report.left_out)


def test_means_of_scattered_integers_stay_on_the_cpu():
    program = torch.export.export(
        Function(lambda x, i: x.scatter_reduce(1, i, x, "mean")), (WHOLE, WHOLE.abs() % 4)
    )
    partitioner = TensorRTPartitioner(builder="tensorrt_rtx")
    assert not blobs(lower(program, partitioner=partitioner))
    assert "scatter_reduce" in str(partitioner.report.left_out)


def test_a_graph_of_a_thousand_edges_is_a_small_engine():
    """Torch-TensorRT's own network of it had two layers for each edge, and 266 MB."""

    def summed(x, places):
        rows = places[:, None].expand(-1, x.shape[1])
        return torch.zeros(20, x.shape[1]).scatter_add(0, rows, x) * 2

    edges = (randn(1024, 16), torch.arange(1024) % 20)
    (blob,) = blobs(lower(torch.export.export(Function(summed), edges), builder="tensorrt_rtx"))
    assert len(blob) < 1 << 20


def test_a_diagonal_of_matrices_of_dynamic_size_stays_on_the_cpu():
    dynamic = (({1: Dim("rows", min=2, max=8)},),)
    model = Function(lambda x: torch.diagonal(x * 2, 0, 1, 2) + 1)
    program = torch.export.export(model, (X,), dynamic_shapes=dynamic)
    partitioner = TensorRTPartitioner(builder="tensorrt_rtx")
    lower(program, partitioner=partitioner)
    assert "converters do not take these arguments" in str(partitioner.report.left_out)


def test_scattering_to_some_of_dynamic_rows_keeps_them_dynamic():
    def added(x):
        return (x * 2).scatter_add(1, (x[:1] > 0).long(), x[:1].sin()) * 2

    dynamic = (({0: Dim("rows", min=2, max=8)},),)
    program = torch.export.export(Function(added), (randn(3, 5),), dynamic_shapes=dynamic)
    load_runtime()
    method = Runtime.get().load_program(lower(program)).load_method("forward")
    for rows in (3, 8):
        x = randn(rows, 5)
        torch.testing.assert_close(method.execute([x])[0], added(x))


def test_what_a_mask_adds_stays_on_the_cpu():
    def added(x, mask, values):
        return aten.index_put(x * 2, [mask], values, True) * 2

    inputs = (X, torch.tensor([True, False, True]), randn(2, 4, 5))
    partitioner = TensorRTPartitioner(builder="tensorrt_rtx")
    lower(torch.export.export(Function(added), inputs), partitioner=partitioner)
    assert "by a mask" in str(partitioner.report.left_out)


def test_a_matrix_of_places_that_would_be_too_large_stays_on_the_cpu():
    def summed(x, places):
        return torch.zeros(1 << 13, 2).index_add(0, places, x) * 2

    edges = (randn(1 << 12, 2), torch.arange(1 << 12))
    program = torch.export.export(Function(summed), edges)
    partitioner = TensorRTPartitioner(builder="tensorrt_rtx")
    lower(program, partitioner=partitioner)
    assert "its places would have 33554432 elements" in str(partitioner.report.left_out)


def test_booleans_are_put_in_order_by_the_cpu():
    program = torch.export.export(Function(lambda x: (x > 0).sort(1)[0]), (X,))
    partitioner = TensorRTPartitioner(builder="tensorrt_rtx")
    lower(program, partitioner=partitioner)
    assert "orders no booleans" in str(partitioner.report.left_out)


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (
            lambda x: torch.scatter_add(x * 2, 0, torch.tensor(0), x).sin(),
            "a number without dimensions",
        ),
        (lambda x: x.unfold(0, 1, 1).sin(), "a number without dimensions"),
        (lambda x: x.argmax() + 1, "a number without dimensions"),
    ],
)
def test_what_cannot_be_done_to_a_number_stays_on_the_cpu(function, why):
    program = torch.export.export(Function(function), (torch.tensor(2.0),))
    partitioner = TensorRTPartitioner(builder="tensorrt_rtx")
    lower(program, partitioner=partitioner)
    assert why in str(partitioner.report.left_out)


def test_what_has_no_layer_of_this_shape_is_refused():
    volume, places = randn(1, 2, 3, 4, 5), randn(1, 3, 4, 5, 3)
    program = torch.export.export(Function(F.grid_sample), (volume, places))
    refusal = make_refusal(BuildOptions())
    assert "images only" in str([refusal(n) for n in program.graph.nodes if n.op != "placeholder"])
    program = torch.export.export(Function(lambda x, y: aten.copy(x, y) * 2), (X, X[0]))
    assert "does not expand" in str([refusal(n) for n in program.graph.nodes if n.args])


def test_a_threshold_of_softplus_is_kept():
    program = torch.export.export(Function(lambda x: F.softplus(x, 2.0, 3.0)), (X,))
    program = program.run_decompositions({})
    (node,) = (n for n in program.graph.nodes if n.target is aten.softplus.default)
    refusal = make_refusal(BuildOptions())
    assert "threshold" in str(refusal(node))
    node.args = (node.args[0], 2.0, 20.0)
    assert refusal(node) is None


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x[0] @ x[0].T,
        lambda x: x @ x.transpose(1, 2),
        lambda x: torch.addmm(x[0], x[1], x[2]),
        lambda x: F.conv1d(x, x[:2, :, :2]),
        lambda x: F.avg_pool1d(x, 2),
    ],
)
def test_products_of_integers_stay_on_the_cpu(function):
    program = torch.export.export(
        Function(lambda x: function(x * 2) + 1), (WHOLE[:, :, :4],)
    )  # Squares.
    partitioner = TensorRTPartitioner(builder="tensorrt_rtx")
    assert blobs(lower(program, partitioner=partitioner))
    assert "no such layer for integers" in str(partitioner.report.left_out)


@pytest.mark.parametrize(
    ("function", "others", "why"),
    [
        (put(None, 0, 1), (randn(3, 3), ROWS, ROWS), "behind a dimension"),
        (lambda x: F.interpolate(x, scale_factor=1.7), (), "no whole number"),
    ],
)
def test_what_is_right_for_known_sizes_alone_stays_on_the_cpu_for_others(function, others, why):
    dynamic = ({2: Dim("columns", min=4, max=64)}, *(None for _ in others))
    inputs = (X, *others)
    program = torch.export.export(Function(function), inputs, dynamic_shapes=(dynamic,))
    refusal = make_refusal(BuildOptions())
    nodes = program.run_decompositions({}).graph.nodes
    assert why in str([refusal(node) for node in nodes if node.op == "call_function"])


def test_a_network_whose_output_has_another_shape_is_not_built():
    # Past the claims, which refuse it.
    with pytest.raises(BuilderError, match="shape"):
        network.build_network(request(Transposed(output_padding=1), IMAGE))


def test_the_comparison_sees_what_differs():
    assert difference(torch.tensor([1, 2]), torch.tensor([1, 3]), 1e-4)
    assert difference(torch.zeros(1), torch.zeros(()), 1e-4)
    assert difference(torch.tensor([float("nan")]), torch.zeros(1), 1e-4)
    assert not difference(torch.tensor([1.0, float("nan")]), torch.tensor([1.0, float("nan")]), 0.0)
