"""Without a rewrite, a network is wrong or cannot be built: when that ends, the rewrite can go."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from packaging.version import Version
from torch import nn
from torch.nn import functional as F

from tests.support.lowering import lower, request
from tests.support.mended import is_fixed
from tests.support.network_evaluator.comparison import compare
from tests.support.programs.crashing_builders import WORKAROUNDS
from trt_et.conversion import prepare
from trt_et.conversion.entries import Rewrite
from trt_et.conversion.installed import installed_variant
from trt_et.conversion.registry import REWRITES
from trt_et.engines.base import BuildRequest
from trt_et.engines.serialize import build_network, serialize
from trt_et.errors import BuilderError, PartitionError
from trt_et.ops.fake_quantize import FAKE_QUANTIZE

pytestmark = pytest.mark.skipif(
    installed_variant() != "tensorrt_rtx", reason="torch-tensorrt-rtx is not installed"
)

quantized = torch.ops.quantized_decomposed

# These make an engine smaller or faster; without them it is right.
IMPROVEMENTS = {"reduce_equal_size_bags", "keep_weights_int8", "keep_weights_int4"}
# TensorRT's documentation leaves the result open; only a GPU could show it.
UNDOCUMENTED = {"zero_fully_masked_rows"}
# Tests of their own fail without them: Whisper at any size (tests/zoo/test_any_size.py), and
# test_equal_at_any_size.py.
OWN_TESTS = {"make_reshape_static", "write_out_dynamic_numbers"}
# These are wrong only in TensorRT's own build.
FAIL_TO_BUILD = {"add_bias_after_split", "dequantize_before_convolution"}
# TensorRT's own build ends its process without them: test_attentions_that_crash.py.
CRASHES = set(WORKAROUNDS)


@dataclass
class Example:
    """A call that needs the rewrite."""

    function: Callable[..., Any]
    inputs: tuple[torch.Tensor, ...]


class Model(nn.Module):
    """A function as a module; its buffers are the function's first arguments."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function
        self.register_buffer("table", torch.tensor([4.0]))

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(self, *inputs)


def put(x: torch.Tensor, index: Any, values: Any, accumulate: bool = False) -> torch.Tensor:
    return torch.ops.aten.index_put.default(x, index, values, accumulate)


def quantized_convolution(model: Model, x: torch.Tensor) -> torch.Tensor:
    how = (0.25, 0, -128, 127, torch.int8)
    y = quantized.quantize_per_tensor.default(x, *how)
    y = quantized.dequantize_per_tensor.default(y, *how)
    weight = torch.ones(4, 4, 1, 1) * 3
    weight = quantized.quantize_per_tensor.default(weight, *how)
    return F.conv2d(y, quantized.dequantize_per_tensor.default(weight, *how))


class Projection(nn.Module):
    """Queries, keys and values of a vision transformer from one biased product."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(32, 96)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x @ self.linear.weight.t() + self.linear.bias
        y = y.reshape(1, 17, 3, 4, 8).permute(2, 0, 3, 1, 4)
        q, k, v = y[0], y[1], y[2]
        y = ((q @ k.transpose(-1, -2)) * 0.3).softmax(-1) @ v
        return y.permute(0, 2, 1, 3).reshape(1, 17, 32)


IMAGE = torch.randn(1, 2, 5, 5)
ROWS = torch.tensor([2, 0])

EXAMPLES: dict[str, Example | nn.Module] = {
    "masked_put_to_where": Example(
        lambda _, x: put(x, [x > 0], torch.tensor(1.0)), (torch.randn(3, 4),)
    ),
    "broadcast_index_put_values": Example(
        lambda _, x, i, v: put(x, [None, None, i], v),
        (torch.randn(1, 2, 4, 3), ROWS, torch.randn(2, 2, 3)),
    ),
    "expand_log_softmax": Example(lambda _, x: (x * 200).log_softmax(-1), (torch.randn(3, 4),)),
    "scatter_add_to_index_add": Example(
        lambda _, x, i, v: put(x, [i], v, accumulate=True),
        (torch.randn(3, 4), torch.tensor([1, 1]), torch.randn(2, 4)),
    ),
    "apply_type_promotion": Example(lambda _, x: x * 2.5, (torch.arange(6),)),
    "divide_exactly": Example(
        lambda _, x, y: torch.div(x, y, rounding_mode="trunc"),
        (
            torch.tensor([3_000_000, -7], dtype=torch.int32),
            torch.tensor([-2_000_000, 2], dtype=torch.int32),
        ),
    ),
    "expand_normalization": Example(lambda _, x: F.instance_norm(x), (IMAGE,)),
    "resample_by_weighted_sums": Example(lambda _, x: F.adaptive_avg_pool2d(x, (2, 3)), (IMAGE,)),
    "expand_ceil_mode_pooling": Example(lambda _, x: F.max_pool2d(x, 2, ceil_mode=True), (IMAGE,)),
    "unsqueeze_to_min_rank": Example(lambda _, x: x.softmax(0), (torch.randn(5),)),
    "fit_scatter_source": Example(
        lambda _, x, i, v: x.scatter(1, i, v),
        (torch.randn(2, 4), torch.tensor([[1, 2], [3, 0]]), torch.randn(2, 3)),
    ),
    "normalize_negative_indices": Example(
        lambda _, x, i, j: x[i, j],
        (torch.randn(3, 4), torch.tensor([0, 1]), torch.tensor([-1, -2])),
    ),
    "flatten_index_put": Example(
        lambda _, x, i, j, v: put(x, [None, i, j], v),
        (torch.randn(2, 3, 4), ROWS, torch.tensor([1, 3]), torch.randn(2, 2)),
    ),
    "split_fake_quantize": Example(
        lambda model, x: FAKE_QUANTIZE(x, model.table, 8, 0, False, True) * 2,
        (torch.randn(3, 4),),
    ),
    "add_bias_after_split": Projection(),
    "dequantize_before_convolution": Example(quantized_convolution, (torch.randn(1, 4, 8, 8),)),
}
INPUTS = {
    "add_bias_after_split": (torch.randn(1, 17, 32),),
}


def request_for(name: str) -> tuple[BuildRequest, tuple[torch.Tensor, ...]]:
    torch.manual_seed(0)
    example = EXAMPLES[name]
    if isinstance(example, Example):
        return request(Model(example.function), *example.inputs), example.inputs
    return request(example, *INPUTS[name]), INPUTS[name]


def names() -> list[str]:
    return [step.apply.__name__ for step in REWRITES if isinstance(step, Rewrite)]


def outcome(name: str) -> str:
    try:
        asked, inputs = request_for(name)
        if name in FAIL_TO_BUILD:
            network = build_network(asked, "tensorrt_rtx")
            serialize(network, "test", lambda piece: len(piece))
            return "equal"
        return compare(asked, *inputs).outcome
    except BuilderError:
        return "not built"


def leave_out(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    others = [s for s in REWRITES if not (isinstance(s, Rewrite) and s.apply.__name__ == name)]
    monkeypatch.setattr(prepare, "REWRITES", tuple(others))


def test_every_rewrite_has_an_example():
    assert set(EXAMPLES) | IMPROVEMENTS | UNDOCUMENTED | OWN_TESTS | CRASHES == set(names())


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_rewrite_is_still_needed(name, monkeypatch):
    assert outcome(name) == "equal"
    leave_out(name, monkeypatch)
    needed = outcome(name) != "equal"
    assert needed != is_fixed(name), f"{name}: needed with this release: {needed}; see fixed_in"


class Repeated(nn.Module):
    """``repeat`` becomes a view of a clone of a permuted constant, and the clone is dropped."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("heads", torch.randn(1, 16, 2, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        heads = (self.heads * 2).permute(0, 2, 1, 3).contiguous().view(-1, 16, 4)
        return x * heads.repeat(4, 1, 1)


def test_views_still_have_to_become_reshapes(monkeypatch):
    program = torch.export.export(Repeated(), (torch.randn(8, 16, 4),))
    lower(program, builder="tensorrt_rtx")
    leave_out("make_reshape_static", monkeypatch)
    if Version(torch.__version__) >= Version("2.14"):
        lower(program, builder="tensorrt_rtx")
        return
    with pytest.raises(PartitionError, match="view size is not compatible"):
        lower(program, builder="tensorrt_rtx")
