"""Attentions whose heads of queries share keys and values."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim
from torch.nn.functional import scaled_dot_product_attention

from tests.support.lowering import lower
from tests.support.models import Function
from tests.support.programs.operator_networks import lower_and_compare
from tests.support.sampled import sampled
from tests.support.simulated_gpus import check
from trt_et import TensorRTPartitioner
from trt_et.passes.grouped_query_attention import share_heads

HEADS, KEY_HEADS, WIDTH = 6, 2, 8
ATTENTION = torch.ops.aten.scaled_dot_product_attention.default


def by_interleaving(x: Tensor) -> Tensor:
    return x.repeat_interleave(HEADS // KEY_HEADS, dim=1)


def by_expanding(x: Tensor, dim: int = 2) -> Tensor:
    batch, _, tokens, width = x.shape
    sizes = [batch, KEY_HEADS, tokens, width]
    sizes.insert(dim, HEADS // KEY_HEADS)
    return x.unsqueeze(dim).expand(sizes).reshape(batch, HEADS, tokens, width)


def from_the_end(x: Tensor) -> Tensor:
    return x.repeat_interleave(HEADS // KEY_HEADS, dim=-3)


def in_turns(x: Tensor) -> Tensor:
    """Keys 0, 1, 0, 1, ...: attention shares them as 0, 0, ..., 1, 1."""
    return by_expanding(x, 1)


def attention(repeat, repeat_values=None):
    other = repeat_values or repeat
    return Function(lambda q, k, v: scaled_dot_product_attention(q, repeat(k), other(v), scale=0.5))


def inputs(tokens: int = 3, keys: int = 5) -> tuple[Tensor, Tensor, Tensor]:
    shape = 2, KEY_HEADS, keys, WIDTH
    return torch.randn(2, HEADS, tokens, WIDTH), torch.randn(shape), torch.randn(shape)


def export(model: nn.Module):
    sizes = [{0: Dim("batch", max=4), 2: Dim(name, max=9)} for name in ("tokens", "keys", "keys")]
    return torch.export.export(model, inputs(), dynamic_shapes=(tuple(sizes),))


def shares_heads(program) -> list[bool]:
    calls = program.graph.find_nodes(op="call_function", target=ATTENTION)
    return [call.kwargs.get("enable_gqa", False) for call in calls]


@pytest.mark.parametrize("repeat", [by_interleaving, by_expanding, from_the_end])
def test_repeated_keys_and_values_are_shared_with_the_same_result(repeat):
    program = export(attention(repeat))
    shared = share_heads(program)
    assert shares_heads(shared) == [True]
    assert shares_heads(program) == [False]
    assert len(shared.graph.nodes) < len(program.graph.nodes)
    for given in (inputs(), inputs(1, 9)):
        torch.testing.assert_close(shared.module()(*given), program.module()(*given))


@pytest.mark.parametrize(
    ("repeat", "repeat_values"),
    [(in_turns, None), (by_interleaving, in_turns), (in_turns, by_interleaving)],
)
def test_heads_in_another_order_stay_repeated(repeat, repeat_values):
    program = export(attention(repeat, repeat_values))
    assert share_heads(program) is program


def tiled(x: Tensor) -> Tensor:
    """The batch of an expansion becomes heads: 0, 1, 0, 1, ..."""
    return x.unsqueeze(2).expand(3, KEY_HEADS, 1, 5, WIDTH).reshape(1, HEADS, 5, WIDTH)


@pytest.mark.parametrize(
    ("repeat", "heads"), [(by_interleaving, 1), (by_interleaving, HEADS // 2), (tiled, HEADS)]
)
def test_only_heads_that_are_repeated_for_the_queries_are_shared(repeat, heads):
    keys = torch.randn(1, KEY_HEADS if repeat is tiled else HEADS // KEY_HEADS, 5, WIDTH)
    given = torch.randn(1, 1 if heads == 1 else heads, 3, WIDTH), keys, keys + 1
    if heads == HEADS // 2:
        given = torch.randn(1, 1, 3, WIDTH), keys[:, :1], keys[:, :1] + 1
    program = torch.export.export(attention(repeat), given)
    assert share_heads(program) is program


class WritesBetween(nn.Module):
    """Repeats its cache, and writes to it before the attention."""

    def __init__(self, repeat, merge) -> None:
        super().__init__()
        self.repeat, self.merge = repeat, merge
        self.register_buffer("cache", torch.ones(2, KEY_HEADS, 5, WIDTH))

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        repeated = self.repeat(self.cache)
        self.cache.copy_(k)
        return scaled_dot_product_attention(q, self.merge(repeated), by_interleaving(v))


@pytest.mark.parametrize(
    ("repeat", "merge"),
    [
        (by_interleaving, lambda x: x),
        (
            lambda x: x[:, :, None].expand(2, KEY_HEADS, 3, 5, WIDTH).clone(),
            lambda x: x.view(2, HEADS, 5, WIDTH),
        ),
    ],
)
def test_a_cache_that_is_written_after_its_copy_stays_repeated(repeat, merge):
    program = torch.export.export(WritesBetween(repeat, merge), inputs())
    assert share_heads(program) is program


NAMED = [torch.ops.aten.repeat_interleave.self_int]


@pytest.mark.parametrize(
    ("options", "shared"),
    [
        ({"excluded_ops": NAMED}, False),
        ({"precision": "float16", "float32_ops": NAMED}, False),
        # As those by which trt_et.llm leaves the check of positions to the CPU.
        ({"excluded_ops": [lambda node: False]}, True),
    ],
)
def test_operators_that_the_caller_names_stay(options, shared):
    partitioner = TensorRTPartitioner(builder="reference", **options)
    program = torch.export.export(attention(by_interleaving), inputs())
    assert shares_heads(partitioner.transform_for_pre_decomposition(program)) == [shared]


@pytest.mark.parametrize("repeat", sampled([by_interleaving, by_expanding], 2))
def test_engines_attend_to_shared_heads(repeat):
    model = attention(repeat)
    pte, _ = lower_and_compare(export(model), runs=True)
    check(pte, model, inputs(), inputs(1, 9))


def test_an_attention_on_the_cpu_repeats_them():
    program = torch.export.export(attention(by_interleaving), inputs())
    pte = lower(program, excluded_ops=[ATTENTION])
    check(pte, attention(by_interleaving), inputs())
