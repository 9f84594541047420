"""Without an entry of the registry, Torch-TensorRT is wrong: when that ends, the entry can go.

Rewrites have ``test_rewrites_are_needed.py``. Here are refusals, decompositions and converters of
ours, and what our interpreter changes in Torch-TensorRT's.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from packaging.version import Version
from torch import nn
from torch.export import Dim
from torch.nn import functional as F

from tests.support.models import Function
from tests.support.network_evaluator.comparison import compare
from tests.support.programs.operator_networks import IMAGE, ROWS, WHOLE, X, put, randn
from trt_et.conversion import registry
from trt_et.conversion.decompose import decomposed_operators
from trt_et.conversion.installed import installed_variant
from trt_et.conversion.registry import CONVERTERS, DECOMPOSITIONS, REFUSALS
from trt_et.conversion.support import convertible_operators, make_support_check
from trt_et.engines import BuildOptions, BuildRequest
from trt_et.engines.serialize import build_network, serialize
from trt_et.errors import BuilderError
from trt_et.graph.fragment import fragment_of_call
from trt_et.lowering.lower import lower_partition

pytestmark = pytest.mark.skipif(
    installed_variant() != "tensorrt_rtx", reason="torch-tensorrt-rtx is not installed"
)

aten = torch.ops.aten
BATCH = {0: Dim("batch", min=1, max=4)}
SIZE = {1: Dim("size", min=3, max=9)}


@dataclass
class Example:
    """A call that Torch-TensorRT gets wrong, with the dynamic sizes of its first input."""

    function: Callable[..., Any]
    inputs: tuple[torch.Tensor, ...]
    sizes: dict[int, Any] | None = None
    is_decomposed: bool = True

    def request(self) -> BuildRequest:
        torch.manual_seed(0)
        model = self.function if isinstance(self.function, nn.Module) else Function(self.function)
        dynamic = self.sizes and (self.sizes, *(None for _ in self.inputs[1:]))
        if dynamic and not isinstance(self.function, nn.Module):
            dynamic = (dynamic,)
        program = torch.export.export(model.eval(), self.inputs, dynamic_shapes=dynamic)
        if self.is_decomposed:
            program = program.run_decompositions({})
        return BuildRequest("test", lower_partition(program, "test"), 0, BuildOptions())


# Nobody knows what a network with a loop gives; no layer but that is not evaluated.
RIGHT = ("equal", "not evaluated")


@dataclass
class Outcome:
    """What became of an example, and how many layers its network has."""

    what: str
    layers: int = 0


def outcome(example: Example, *, is_asked: bool = True) -> Outcome:
    """``equal``, or what Torch-TensorRT, TensorRT or the evaluator say."""
    asked = example.request()
    if is_asked:
        check = make_support_check(BuildOptions())
        nodes = asked.lowered.program.graph.nodes
        calls = [n for n in nodes if n.op == "call_function" and n.target is not operator.getitem]
        calls = [call for call in calls if not isinstance(call.meta["val"], int | torch.SymInt)]
        if any(check(fragment_of_call(call, {})) for call in calls):
            return Outcome("refused")
    try:
        network = build_network(asked, "tensorrt_rtx")
        what = compare(asked, *example.inputs).outcome
        if what in RIGHT:
            serialize(network, "test", lambda piece: len(piece))
        return Outcome(what, network.network.num_layers)
    except BuilderError:
        return Outcome("not built")


def transposed() -> nn.Module:
    return nn.ConvTranspose2d(4, 6, 3, stride=3, output_padding=1)


# What TensorRT or Torch-TensorRT refuses, and the support check finds out.
REFUSED_BY_TENSORRT = {
    "products of integers": Example(lambda x: x @ x.transpose(1, 2), (WHOLE,)),
    "outputs padded beyond the padding": Example(transposed(), (IMAGE,)),
    "order of booleans": Example(lambda x: (x > 0).sort(1)[0], (X,)),
    "a tensor without dimensions": Example(lambda x: x.argmax() + 1, (torch.tensor(2.0),)),
    "a copy that broadcasts": Example(lambda x, y: aten.copy(x, y) * 2, (X, X[0])),
    "a dynamic number of channels": Example(lambda x: F.max_pool2d(x * 2, 2), (IMAGE,), SIZE),
    "averages of dynamic sizes": Example(
        lambda x: F.adaptive_avg_pool2d(x, (2, 3)), (IMAGE,), {2: Dim("height", min=2, max=16)}
    ),
    "nine dimensions": Example(lambda x: x.reshape(3, 1, 2, 2, 1, 5, 1, 1, 1) * 2, (X,)),
    "nine dimensions inside": Example(lambda x: x.repeat(1, 1, 2, 1, 1), (randn(1, 2, 3, 2, 2),)),
    "attention of five dimensions": Example(
        lambda q: F.scaled_dot_product_attention(q, q, q), (randn(1, 2, 2, 4, 8),)
    ),
    "groups of numbers": Example(lambda x: F.group_norm(x, 2), (randn(3, 4),)),
    "pooling of one volume": Example(lambda x: F.max_pool3d(x, 2), (randn(3, 4, 4, 4),)),
}


@pytest.mark.parametrize("name", REFUSED_BY_TENSORRT)
def test_what_tensorrt_refuses_is_found_out(name):
    assert outcome(REFUSED_BY_TENSORRT[name]).what == "refused"
    assert outcome(REFUSED_BY_TENSORRT[name], is_asked=False).what == "not built"


REFUSED = {
    "unsupported_scatter_reason": Example(
        lambda x, i, v: aten.index_put(x, [i, i], v, True),
        (X, torch.tensor([1, 1]), randn(2, 5)),
    ),
    "scatter_into_number": Example(
        lambda x, i: x.scatter(0, i, torch.tensor(3.0)) * 2,
        (torch.tensor(1.0), torch.tensor(0)),
    ),
    "softplus_threshold": Example(lambda x: F.softplus(x, 2.0, 3.0), (X,)),
    "dynamic_index_put": Example(
        put(None, 0, 1),
        (X, randn(3, 3), ROWS, ROWS),
        {2: Dim("columns", min=4, max=64)},
    ),
    "dynamic_resize_factor": Example(
        lambda x: F.interpolate(x, scale_factor=1.7), (X,), {2: Dim("length", min=4, max=64)}
    ),
}


def test_every_refusal_has_an_example():
    assert set(REFUSED) == {refusal.reason.__name__ for refusal in REFUSALS}


@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_is_still_needed(name):
    (refusal,) = (refusal for refusal in REFUSALS if refusal.reason.__name__ == name)
    is_refused = outcome(REFUSED[name]).what == "refused"
    needed = outcome(REFUSED[name], is_asked=False).what not in RIGHT
    assert is_refused == needed
    assert needed != refusal.is_fixed(), f"{name}: needed with this release: {needed}"


BAGS = (randn(6, 4).half(), torch.tensor([0, 2, 5, 1]), torch.tensor([0, 3]))
# Torch-TensorRT has layers for each of them.
EDGES = (randn(4, 3), torch.arange(32).reshape(16, 2) % 4, randn(16, 2))

DECOMPOSED = {
    "embedding_bag": Example(lambda w, i, o: aten._embedding_bag.default(w, i, o)[0], BAGS),
    "_scatter_add": Example(lambda x, i, v: torch.scatter_add(x[:, :2], 0, i, v), EDGES),
    "scatter_reduce": Example(
        lambda x, i, v: torch.scatter_reduce(x[:, :2], 0, i, v, "amax"), EDGES
    ),
    "_index_add": Example(lambda x, i, v: torch.index_add(x[:, :2], 0, i[:, 0], v), EDGES),
    "diagonal": Example(lambda x: torch.diagonal(x, 0, 1, 2) * 2, (X,), BATCH),
    "log1p": Example(lambda x: (x * x).log1p(), (X,), BATCH),
    "max_with_indices": Example(lambda x: tuple(x.max(1)), (X,)),
    "min_with_indices": Example(lambda x: tuple(x.min(1)), (X,)),
    "float_remainder": Example(lambda x: x % 0.1, (torch.tensor([2.0, 1e6, 7.3]),)),
    "fmod": Example(lambda x: x.fmod(torch.inf) + 1, (X,)),
    "variance": Example(lambda x: x.var(), (X,), BATCH),
    "slice_scatter": Example(
        lambda x: torch.slice_scatter(x * 1, x[:, -2:] * 2, 1, -2), (X,), SIZE
    ),
}


@pytest.fixture
def without_decomposition(monkeypatch) -> Iterator[Callable[[str], None]]:
    def leave_out(name: str) -> None:
        for op, function in list(DECOMPOSITIONS.items()):
            if function.__name__ == name:
                monkeypatch.delitem(DECOMPOSITIONS, op)
        decomposed_operators.cache_clear()

    yield leave_out
    monkeypatch.undo()
    decomposed_operators.cache_clear()


def test_every_decomposition_has_an_example():
    assert set(DECOMPOSED) == {function.__name__ for function in DECOMPOSITIONS.values()}


@pytest.mark.parametrize("name", DECOMPOSED)
def test_a_decomposition_is_still_needed(name, without_decomposition):
    ours = outcome(DECOMPOSED[name])
    assert ours.what == "equal"
    without_decomposition(name)
    found = outcome(DECOMPOSED[name])
    # Some are right, in layers for each element, or are loops.
    needed = found.what != "equal" or found.layers > 2 * ours.layers
    assert needed, f"{name} is no longer needed with this release: remove it"


CONVERTED = {
    aten._to_copy.default: Example(lambda x: aten._to_copy(x, dtype=torch.half), (X,), BATCH),
    aten.cumsum.default: Example(lambda x: x.cumsum(1), (X,)),
    aten.gather.default: Example(lambda x: x.gather(2, x.argsort(2)[:, :, :2]), (X,), BATCH),
    aten.where.self: Example(torch.where, (X > 0, WHOLE + (1 << 40), WHOLE)),
    aten.slice.Tensor: Example(lambda x: aten.slice.Tensor(x, 1, -12, 2) * 2, (X,), SIZE),
    aten.select.int: Example(lambda x: x[:, -2] * 2, (X,), SIZE),
    aten.upsample_linear1d.vec: Example(
        lambda x: F.interpolate(x[None], x.shape[0] * 3, mode="linear") * 2,
        (X[0],),
        {0: Dim("size", min=2, max=9)},
        is_decomposed=False,
    ),
}


def test_every_converter_of_an_operator_of_torch_has_an_example():
    of_torch = {CONVERTERS[op] for op in CONVERTERS if getattr(op, "namespace", "") == "aten"}
    assert {CONVERTERS[operator] for operator in CONVERTED} == of_torch


@pytest.mark.parametrize("operator", CONVERTED, ids=str)
def test_a_converter_is_still_needed(operator, monkeypatch):
    assert outcome(CONVERTED[operator]).what == "equal"
    monkeypatch.delitem(registry.CONVERTERS, operator)
    # TensorRT-RTX 1.6 builds the loop of a cumulative sum. Ours is one layer, and evaluated.
    found = outcome(CONVERTED[operator]).what
    assert found != "equal", f"{operator} needs no converter of ours any longer: remove it"


def test_torch_tensorrt_still_has_no_converter_of_the_other_operators():
    others = [op for op in CONVERTERS if getattr(op, "namespace", "") != "aten"]
    assert others
    assert not convertible_operators() & set(others)


class ConstantQueries(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.queries = nn.Parameter(randn(2, 4, 3, 8))

    def forward(self, keys: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(self.queries, keys, keys)


class ConstantIndices(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("indices", torch.tensor([2, 0]))

    def forward(self, weights: torch.Tensor) -> torch.Tensor:
        return F.embedding(self.indices, weights)


ADAPTED = {
    "constants of an attention": Example(
        ConstantQueries(), (randn(2, 4, 6, 8),), is_decomposed=False
    ),
    "constant indices": Example(ConstantIndices(), (randn(4, 3),)),
    "an empty slice": Example(
        lambda x: aten.slice.Tensor(x, 0, 2, 1).sum(0), (X,), is_decomposed=False
    ),
}
# They change nothing there, and go when pyproject.toml allows no Torch-TensorRT 2.13.
MENDED_IN_2_14 = {"constant indices"}


@pytest.mark.parametrize("name", ADAPTED)
def test_arguments_still_have_to_be_adapted(name, monkeypatch):
    assert outcome(ADAPTED[name]).what == "equal"
    from trt_et.conversion.interpreter import PartitionInterpreter

    monkeypatch.setattr(PartitionInterpreter, "_adapted", lambda self, target, args: args)
    needed = outcome(ADAPTED[name]).what not in RIGHT
    is_fixed = name in MENDED_IN_2_14 and Version(torch.__version__) >= Version("2.14")
    assert needed != is_fixed, f"{name}: needed with this release: {needed}"


def twice(x):
    y = x * 2
    return y, y


@pytest.mark.parametrize("function", [twice, lambda x: (x * 2, x), lambda x: x.sum() * 2])
def test_outputs_still_have_to_be_marked_one_by_one(function, monkeypatch):
    example = Example(function, (X,))
    assert outcome(example).what == "equal"
    from trt_et.conversion.interpreter import PartitionInterpreter, TRTInterpreter

    monkeypatch.setattr(PartitionInterpreter, "output", TRTInterpreter.output)
    with pytest.raises((BuilderError, AttributeError)):
        build_network(example.request())


def test_weights_still_have_to_be_kept():
    network = build_network(Example(lambda x: x * 2, (X,)).request())
    from torch_tensorrt.dynamo.conversion._ConversionContext import ConversionContext

    context = ConversionContext(network.network, network.interpreter.compilation_settings)
    weight = randn(2, 3).T
    context.record_weight("weight", weight)
    # Torch-TensorRT hands TensorRT a contiguous copy, which nobody keeps.
    assert not weight.is_contiguous(), "PartitionInterpreter's context is no longer needed"
