"""Each kind of layer, evaluated, against torch's own operator or numbers written out."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import tensorrt_rtx as trt
import torch
from torch.nn import functional as F

from tests.support.network_evaluator import BadNetwork, NotEvaluated, Undefined, evaluate
from tests.support.network_evaluator.registry import DTYPES
from trt_et.conversion.torch_tensorrt_patches import without_gpu

_TRT = {dtype: kind for kind, dtype in DTYPES.items()}
_LOGGER = trt.Logger(trt.Logger.ERROR)


def run(add, *inputs: torch.Tensor):
    """The outputs of a network of one layer, ``add(network, *tensors)``."""
    with without_gpu():
        builder = trt.Builder(_LOGGER)
        network = builder.create_network(0)
        tensors = [
            network.add_input(f"input{i}", _TRT[value.dtype], tuple(value.shape))
            for i, value in enumerate(inputs)
        ]
        layer = add(network, *tensors)
        for index in range(layer.num_outputs):
            network.mark_output(layer.get_output(index))
        named = {f"input{i}": value for i, value in enumerate(inputs)}
        interpreter = SimpleNamespace(ctx=SimpleNamespace(weight_refit_map={}))
        found = evaluate(SimpleNamespace(network=network, interpreter=interpreter), named)
    return found


def changed(layer, **attributes):
    for name, value in attributes.items():
        setattr(layer, name, value)
    return layer


def numbers(*values):
    return torch.tensor(values)


def constant(network, values: torch.Tensor):
    array = values.numpy()
    _KEPT.append(array)  # TensorRT reads the memory later.
    return network.add_constant(tuple(values.shape), array).get_output(0)


_KEPT: list[object] = []
G = torch.Generator().manual_seed(0)
X, Y = torch.randn(3, 4, generator=G), torch.randn(3, 4, generator=G)
IMAGE = torch.randn(2, 4, 7, 6, generator=G)
KERNEL, UP = torch.randn(6, 2, 3, 2, generator=G), torch.randn(4, 3, 3, 2, generator=G)
BIAS = torch.randn(6, generator=G)
WHOLE, BY = numbers(-7, 7, -6, 0), numbers(2, -2, 3, 5)
ONCE = torch.tensor([[2, 0], [1, 3]])
INDICES = torch.tensor([[2, 0], [1, -1]])
E, U = trt.ElementWiseOperation, trt.UnaryOperation
M, S, R = trt.MatrixOperation, trt.SampleMode, trt.ReduceOperation
TABLE = torch.arange(24.0).reshape(6, 4)
CUBES = torch.randn(2, 3, 4, 5, generator=G)


def sliced(mode, start, shape, stride, fill=None):
    def add(net, x, *_):
        layer = changed(net.add_slice(x, start, shape, stride), mode=mode)
        if fill is not None:
            layer.set_input(4, constant(net, fill))
        return layer

    return add


def pooled(kind, **attributes):
    return lambda net, x: changed(net.add_pooling_nd(x, kind, (3, 2)), **attributes)


def resized(mode, transformation, shape=None, scales=None, **more):
    where = {"shape": shape} if shape else {"scales": scales}
    return lambda net, x: changed(
        net.add_resize(x),
        resize_mode=getattr(trt.InterpolationMode, mode),
        coordinate_transformation=getattr(trt.ResizeCoordinateTransformation, transformation),
        **where,
        **more,
    )


def convolved(net, x):
    layer = net.add_convolution_nd(x, 6, (3, 2), KERNEL.numpy(), BIAS.numpy())
    return changed(layer, num_groups=2, stride_nd=(2, 1), padding_nd=(1, 1), dilation_nd=(1, 2))


def deconvolved(net, x):
    layer = net.add_deconvolution_nd(x, 6, (3, 2), UP.numpy(), BIAS.numpy())
    return changed(layer, num_groups=2, stride_nd=(2, 1), pre_padding=(1, 1), post_padding=(0, 1))


def reshaped(net, x):
    return changed(
        net.add_shuffle(x),
        first_transpose=(1, 0),
        reshape_dims=(0, -1, 3),
        second_transpose=(2, 0, 1),
    )


def attended(net, q, k, v):
    block = net.add_attention(q, k, v, trt.AttentionNormalizationOp.SOFTMAX, True)
    return SimpleNamespace(num_outputs=1, get_output=block.get_output)


def quantized(net, x):
    scale = constant(net, torch.tensor(0.5))
    return net.add_quantize(x, scale, trt.DataType.INT8)


def filled(net):
    layer = net.add_fill((2, 3), trt.FillOperation.LINSPACE, trt.DataType.INT64)
    layer.set_input(1, constant(net, torch.tensor(1)))
    layer.set_input(2, constant(net, numbers(10, 2)))
    return layer


def normalized(net, x):
    scale, bias = (constant(net, t.reshape(1, 2, 1, 1)) for t in (BIAS[:2], BIAS[2:4]))
    layer = net.add_normalization(x, scale, bias, 0b1100)
    return changed(layer, num_groups=2, epsilon=1e-3)


def grouped():
    scale, bias = (t.repeat_interleave(2) for t in (BIAS[:2], BIAS[2:4]))
    return F.group_norm(IMAGE, 2, scale, bias, 1e-3)


CASES = {
    "sum": (lambda n, a, b: n.add_elementwise(a, b, E.SUM), (X, Y[:1]), X + Y[:1]),
    "quotient": (lambda n, a, b: n.add_elementwise(a, b, E.DIV), (X, Y), X / Y),
    "quotient of integers": (
        *(lambda n, a, b: n.add_elementwise(a, b, E.DIV), (WHOLE, BY)),
        numbers(-3, -3, -2, 0),
    ),
    "floor of a quotient": (
        *(lambda n, a, b: n.add_elementwise(a, b, E.FLOOR_DIV), (WHOLE, BY)),
        numbers(-4, -4, -2, 0),
    ),
    "comparison": (lambda n, a, b: n.add_elementwise(a, b, E.GREATER), (X, Y), X > Y),
    "exclusive or": (
        *(lambda n, a, b: n.add_elementwise(a, b, E.XOR), (X > 0, Y > 0)),
        (X > 0) != (Y > 0),
    ),
    "root": (lambda n, a: n.add_unary(a, U.SQRT), (X.abs(),), X.abs() ** 0.5),
    "rounding": (
        *(lambda n, a: n.add_unary(a, U.ROUND), (numbers(0.5, 1.5, -2.5),)),
        numbers(0.0, 2.0, -2.0),
    ),
    "elu": (
        lambda n, a: changed(n.add_activation(a, trt.ActivationType.ELU), alpha=2.0),
        (X,),
        F.elu(X, 2.0),
    ),
    "clip": (
        lambda n, a: changed(n.add_activation(a, trt.ActivationType.CLIP), alpha=-1, beta=0.5),
        (X,),
        X.clamp(-1, 0.5),
    ),
    "parametric relu": (
        lambda n, a, b: n.add_parametric_relu(a, b),
        (X, Y),
        F.relu(X) - Y * F.relu(-X),
    ),
    "cast": (lambda n, a: n.add_cast(a, trt.DataType.INT32), (X * 3,), (X * 3).int()),
    "select": (
        *(lambda n, c, a, b: n.add_select(c, a, b), (X > 0, X, Y[:, :1])),
        torch.where(X > 0, X, Y[:, :1]),
    ),
    "reduction": (lambda n, a: n.add_reduce(a, R.AVG, 0b10, True), (X,), X.mean(1, keepdim=True)),
    "products": (lambda n, a: n.add_reduce(a, R.PROD, 0b11, False), (X,), X.prod()),
    "softmax": (lambda n, a: changed(n.add_softmax(a), axes=0b01), (X,), X.softmax(0)),
    "matrix by matrix": (
        lambda n, a, b: n.add_matrix_multiply(a, M.NONE, b, M.TRANSPOSE),
        (X, Y),
        X @ Y.t(),
    ),
    "matrix by vector": (
        lambda n, a, b: n.add_matrix_multiply(a, M.TRANSPOSE, b, M.VECTOR),
        (X, Y[:, 0].contiguous()),
        X.t() @ Y[:, 0],
    ),
    "cumulative": (
        lambda n, a: n.add_cumulative(
            a, constant(n, torch.tensor(1)), trt.CumulativeOperation.SUM, True, True
        ),
        (numbers([1, 2, 3]),),
        numbers([5, 3, 0]),
    ),
    "einsum": (lambda n, a, b: n.add_einsum([a, b], "ij,kj->ki"), (X, Y), Y @ X.t()),
    "normalization by groups": (normalized, (IMAGE,), grouped()),
    "quantization": (
        quantized,
        (numbers(0.25, 0.75, -99.0, 99.0),),
        numbers(0, 2, -128, 127).to(torch.int8),
    ),
    "shuffle": (reshaped, (TABLE,), TABLE.t().reshape(4, -1, 3).permute(2, 0, 1)),
    "slice": (sliced(S.STRICT_BOUNDS, (2, 3), (2, 2), (-1, -2)), (X,), X.flip(0, 1)[:2, ::2]),
    "slice with a fill": (
        sliced(S.FILL, (-1, 0), (5, 6), (1, 1), torch.tensor(9.0)),
        (X,),
        F.pad(X, (0, 2, 1, 1), value=9.0),
    ),
    "slice that reflects": (
        sliced(S.REFLECT, (-2, 0), (7, 4), (1, 1)),
        (X,),
        F.pad(X.t()[None], (2, 2), mode="reflect")[0].t(),
    ),
    "slice that clamps": (
        sliced(S.CLAMP, (-2, 0), (7, 4), (1, 1)),
        (X,),
        F.pad(X.t()[None], (2, 2), mode="replicate")[0].t(),
    ),
    "slice that wraps": (sliced(S.WRAP, (1, 0), (3, 4), (1, 1)), (X,), X.roll(-1, 0)),
    "concatenation": (
        lambda n, a, b: changed(n.add_concatenation([a, b]), axis=1),
        (X, Y),
        torch.cat([X, Y], 1),
    ),
    "shape": (lambda n, a: n.add_shape(a), (X,), numbers(3, 4)),
    "squeeze": (lambda n, a: n.add_squeeze(a, constant(n, numbers(1))), (X[:, :1],), X[:, 0]),
    "unsqueeze": (
        *(lambda n, a: n.add_unsqueeze(a, constant(n, numbers(0, 2))), (X,)),
        X[None, :, None],
    ),
    "gather": (lambda n, a, i: n.add_gather(a, i, 1), (X, INDICES), X[:, INDICES]),
    "gather of elements": (
        lambda n, a, i: changed(n.add_gather_v2(a, i, trt.GatherMode.ELEMENT), axis=1),
        (X[:2], INDICES.abs()),
        X[:2].gather(1, INDICES.abs()),
    ),
    "gather of slices": (
        lambda n, a, i: n.add_gather_v2(a, i, trt.GatherMode.ND),
        (CUBES, torch.tensor([[1, 2], [0, 0]])),
        CUBES[[1, 0], [2, 0]],
    ),
    "scatter of elements": (
        lambda n, a, i, u: changed(n.add_scatter(a, i, u, trt.ScatterMode.ELEMENT), axis=1),
        (X[:2], ONCE, Y[:2, :2]),
        X[:2].scatter(1, ONCE, Y[:2, :2]),
    ),
    "scatter of slices": (
        lambda n, a, i, u: n.add_scatter(a, i, u, trt.ScatterMode.ND),
        (X, torch.tensor([[2], [0]]), Y[:2]),
        torch.stack([Y[1], X[1], Y[0]]),
    ),
    "positions that are not zero": (
        lambda n, a: n.add_non_zero(a, trt.DataType.INT64),
        (X > 0,),
        (X > 0).nonzero().t(),
    ),
    "fill": (filled, (), numbers([1, 3, 5], [11, 13, 15])),
    "convolution": (
        *(convolved, (IMAGE,)),
        F.conv2d(IMAGE, KERNEL, BIAS, (2, 1), (1, 1), (1, 2), 2),
    ),
    "deconvolution": (
        *(deconvolved, (IMAGE,)),
        F.conv_transpose2d(IMAGE, UP, BIAS, (2, 1), (1, 1), (1, 0), 2),
    ),
    "largest of a window": (
        pooled(trt.PoolingType.MAX, stride_nd=(2, 2), padding_nd=(1, 1)),
        (IMAGE,),
        F.max_pool2d(IMAGE, (3, 2), 2, 1),
    ),
    "average of a window": (
        pooled(trt.PoolingType.AVERAGE, padding_nd=(1, 1), average_count_excludes_padding=True),
        (IMAGE,),
        F.avg_pool2d(IMAGE, (3, 2), 1, 1, count_include_pad=False),
    ),
    "average with its padding, rounded up": (
        pooled(
            trt.PoolingType.AVERAGE,
            padding_nd=(1, 1),
            stride_nd=(3, 3),
            average_count_excludes_padding=False,
            padding_mode=trt.PaddingMode.EXPLICIT_ROUND_UP,
        ),
        (IMAGE,),
        F.avg_pool2d(IMAGE, (3, 2), 3, 1, ceil_mode=True),
    ),
    "nearest": (
        resized("NEAREST", "ASYMMETRIC", (2, 4, 11, 3), nearest_rounding=trt.ResizeRoundMode.FLOOR),
        (IMAGE,),
        F.interpolate(IMAGE, (11, 3)),
    ),
    "linear": (
        resized("LINEAR", "HALF_PIXEL", (2, 4, 11, 3)),
        (IMAGE,),
        F.interpolate(IMAGE, (11, 3), mode="bilinear"),
    ),
    "linear with corners": (
        resized("LINEAR", "ALIGN_CORNERS", scales=(1, 1, 2, 1.5)),
        (IMAGE,),
        F.interpolate(IMAGE, (14, 9), mode="bilinear", align_corners=True),
    ),
    "cubic": (
        resized("CUBIC", "HALF_PIXEL", (2, 4, 11, 3)),
        (IMAGE,),
        F.interpolate(IMAGE, (11, 3), mode="bicubic"),
    ),
    "attention": (
        *(attended, (CUBES, CUBES + 1, CUBES - 1)),
        F.scaled_dot_product_attention(CUBES, CUBES + 1, CUBES - 1, is_causal=True, scale=1.0),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_layer_is_what_torch_computes(case):
    add, inputs, expected = CASES[case]
    found = run(add, *inputs)[0]
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


def test_the_largest_come_in_order_with_their_places():
    values, positions = run(lambda n, a: n.add_topk(a, trt.TopKOperation.MAX, 2, 0b10), X)
    expected = X.topk(2, 1)
    torch.testing.assert_close(values, expected.values)
    torch.testing.assert_close(positions.long(), expected.indices)


BAD = {
    "dtypes that differ": (lambda n, a, b: n.add_elementwise(a, b, E.SUM), (X, X.half())),
    "a root of integers": (lambda n, a: n.add_unary(a, U.SQRT), (WHOLE,)),
    "a slice out of bounds": (sliced(S.STRICT_BOUNDS, (0, 2), (3, 3), (1, 1)), (X,)),
    "a sum of booleans": (lambda n, a: n.add_reduce(a, R.SUM, 1, False), (X > 0,)),
    "a negative index to scatter at": (
        lambda n, a, i, u: n.add_scatter(a, i, u, trt.ScatterMode.ND),
        (X, torch.tensor([[-1], [0]]), Y[:2]),
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_what_tensorrt_does_not_take_is_said(case):
    add, inputs = BAD[case]
    with pytest.raises(BadNetwork):
        run(add, *inputs)


def test_two_writes_to_one_place_are_undefined():
    with pytest.raises(Undefined, match="twice"):
        run(
            lambda n, a, i, u: n.add_scatter(a, i, u, trt.ScatterMode.ND),
            *(X, torch.tensor([[1], [1]]), Y[:2]),
        )


def masked(net, q, k, v, mask):
    block = net.add_attention(q, k, v, trt.AttentionNormalizationOp.SOFTMAX, False)
    block.mask = mask
    return SimpleNamespace(num_outputs=1, get_output=block.get_output)


def test_attention_to_nothing_is_undefined():
    mask = torch.ones(1, 1, 4, 4, dtype=torch.bool)
    mask[..., 0] = False
    (found,) = run(masked, CUBES, CUBES, CUBES, mask)
    expected = F.scaled_dot_product_attention(CUBES, CUBES, CUBES, mask, scale=1.0)
    torch.testing.assert_close(found, expected)
    mask[..., 2, :] = False
    with pytest.raises(Undefined, match="masked altogether"):
        run(masked, CUBES, CUBES, CUBES, mask)


def test_a_layer_that_is_not_known_is_named():
    with pytest.raises(NotEvaluated, match="LRN"):
        run(lambda n, a: n.add_lrn(a, 3, 1.0, 1.0, 1.0), IMAGE)
