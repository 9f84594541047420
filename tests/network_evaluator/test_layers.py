"""Networks that TensorRT refuses, or whose result it leaves undefined, are told from right ones.

That a layer computes what it should is held by the tests that compare networks with eager.
"""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import tensorrt_rtx as trt
import torch
from torch.nn import functional as F

from tests.support.network_evaluator import BadNetwork, NotEvaluated, Undefined, evaluate
from tests.support.network_evaluator.comparison import difference
from tests.support.network_evaluator.registry import DTYPES
from trt_et.conversion.torch_tensorrt_patches import without_gpu

_TRT = {dtype: kind for kind, dtype in DTYPES.items()}
_LOGGER = trt.Logger(trt.Logger.ERROR)
G = torch.Generator().manual_seed(0)
X, Y = torch.randn(3, 4, generator=G), torch.randn(3, 4, generator=G)
WHOLE, BY = torch.tensor([-7, 7, -6, 0]), torch.tensor([2, -2, 3, 5])
HEADS = torch.randn(2, 3, 4, 5, generator=G)
E, SCATTER = trt.ElementWiseOperation, trt.ScatterMode.ND


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


def sliced(mode, start, shape):
    def add(net, x):
        layer = net.add_slice(x, start, shape, (1, 1))
        layer.mode = mode
        return layer

    return add


def attended(net, q, k, v, mask):
    block = net.add_attention(q, k, v, trt.AttentionNormalizationOp.SOFTMAX, False)
    block.mask = mask
    return SimpleNamespace(num_outputs=1, get_output=block.get_output)


# What torch has in another way.
CASES = {
    "a quotient of integers": (E.DIV, (WHOLE, BY), torch.tensor([-3, -3, -2, 0])),
    "a floor of a quotient": (E.FLOOR_DIV, (WHOLE, BY), torch.tensor([-4, -4, -2, 0])),
    "a slice that reflects": (
        *(sliced(trt.SampleMode.REFLECT, (-2, 0), (7, 4)), (X,)),
        F.pad(X.t()[None], (2, 2), mode="reflect")[0].t(),
    ),
    "a slice that wraps": (sliced(trt.SampleMode.WRAP, (1, 0), (3, 4)), (X,), X.roll(-1, 0)),
}


@pytest.mark.parametrize("case", CASES)
def test_a_layer_computes_what_tensorrt_documents(case):
    layer, inputs, expected = CASES[case]
    add = layer if callable(layer) else lambda n, a, b: n.add_elementwise(a, b, layer)
    assert not difference(run(add, *inputs)[0], expected, 1e-6)


BAD = {
    "dtypes that differ": (lambda n, a, b: n.add_elementwise(a, b, E.SUM), (X, X.half())),
    "a root of integers": (lambda n, a: n.add_unary(a, trt.UnaryOperation.SQRT), (WHOLE,)),
    "a slice out of bounds": (sliced(trt.SampleMode.STRICT_BOUNDS, (0, 2), (3, 3)), (X,)),
    "a sum of booleans": (
        *(lambda n, a: n.add_reduce(a, trt.ReduceOperation.SUM, 1, False), (X > 0,)),
    ),
    "a negative index to scatter at": (
        *(lambda n, a, i, u: n.add_scatter(a, i, u, SCATTER),),
        (X, torch.tensor([[-1], [0]]), Y[:2]),
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_a_network_that_tensorrt_refuses_is_bad(case):
    add, inputs = BAD[case]
    with pytest.raises(BadNetwork):
        run(add, *inputs)


def test_two_writes_to_one_place_are_undefined():
    with pytest.raises(Undefined, match="twice"):
        run(
            lambda n, a, i, u: n.add_scatter(a, i, u, SCATTER),
            *(X, torch.tensor([[1], [1]]), Y[:2]),
        )


def test_attention_to_nothing_is_undefined():
    mask = torch.ones(1, 1, 4, 4, dtype=torch.bool)
    mask[..., 0] = False
    (found,) = run(attended, HEADS, HEADS, HEADS, mask)
    expected = F.scaled_dot_product_attention(HEADS, HEADS, HEADS, mask, scale=1.0)
    torch.testing.assert_close(found, expected)
    mask[..., 2, :] = False
    with pytest.raises(Undefined, match="masked altogether"):
        run(attended, HEADS, HEADS, HEADS, mask)


def test_a_layer_that_is_not_known_is_named():
    with pytest.raises(NotEvaluated, match="LRN"):
        run(lambda n, a: n.add_lrn(a, 3, 1.0, 1.0, 1.0), HEADS)


def test_the_comparison_sees_what_differs():
    assert difference(torch.tensor([1, 2]), torch.tensor([1, 3]), 1e-4)
    assert difference(torch.zeros(1), torch.zeros(()), 1e-4)
    assert difference(torch.tensor([float("nan")]), torch.zeros(1), 1e-4)
    assert not difference(torch.tensor([1.0, float("nan")]), torch.tensor([1.0, float("nan")]), 0.0)
