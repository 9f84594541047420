"""Attentions, and others, that end the process in TensorRT-RTX's builder: built, equal to eager."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager, nullcontext

import pytest
import torch
from torch.export import Dim
from torch.nn.functional import scaled_dot_product_attention as attention

from tests.support.lowering import lower, request
from tests.support.mended import is_fixed
from tests.support.models import Function
from tests.support.network_evaluator.comparison import compare
from tests.support.programs.attention_networks import CRASHES, NEIGHBOURS, Case, build
from tests.support.programs.crashing_builders import WithoutWorkarounds
from tests.support.programs.quantized_networks import needs_rtx
from trt_et.engines.serialize import build_network
from trt_et.errors import BuildCrashed

pytestmark = needs_rtx


CRASH, WORKAROUND = "two attentions of one query", "inputs of attentions"


@pytest.mark.parametrize("name", [*CRASHES, *NEIGHBOURS])
def test_it_is_built_in_a_process_that_lives_and_equals_eager(name):
    assert build(name) == "built"
    verdict = compare({**CRASHES, **NEIGHBOURS}[name].request())
    assert verdict.outcome == "equal", verdict


@pytest.mark.parametrize(
    ("crash", "workaround"), [(CRASH, WORKAROUND), ("an einsum and its bias", "permute")]
)
def test_without_its_workaround_the_builder_ends_its_process(crash, workaround):
    """Where this fails, the installed release needs it no longer: see ``fixed_in``."""
    outcome = "built" if is_fixed(workaround) else "SIGSEGV"
    assert build(crash, workarounds=False) == outcome


@pytest.mark.long
def test_without_the_workarounds_the_crash_is_an_error_of_its_partition():
    crash: AbstractContextManager[object] = nullcontext()
    if not is_fixed(WORKAROUND):
        crash = pytest.raises(
            BuildCrashed, match=r"\(SIGSEGV\) on partition tensorrt_0 .*attention"
        )
    spawn = multiprocessing.get_context("spawn")
    with crash, ProcessPoolExecutor(1, mp_context=spawn) as pool:
        lower(CRASHES[CRASH].program(), builder=WithoutWorkarounds(), executor=pool)


def masked(x, mask):
    return attention(x, x, x, mask)


HIDDEN = torch.ones(1, 1, 5, 5, dtype=torch.bool).tril(-1)  # The first query sees nothing.
HALVES = {
    "no mask": (lambda x: attention(x, x, x), ()),
    "causal": (lambda x: attention(x, x[:, :, :3], x[:, :, :3], is_causal=True), ()),
    "a scale": (lambda x: attention(x, x, x, scale=0.3), ()),
    "shared heads": (lambda x: attention(x, x[:, :2], x[:, :2], enable_gqa=True), ()),
    "booleans": (masked, (HIDDEN,)),
    "numbers": (masked, (torch.zeros(1, 1, 5, 5).masked_fill(~HIDDEN, -torch.inf),)),
    "a constant": (lambda x: masked(x, torch.ones(5, 5).tril().bool()), ()),
}


@pytest.mark.parametrize("name", HALVES)
def test_attention_in_half_precision_equals_eager(name):
    function, masks = HALVES[name]
    masks = tuple(mask.half() if mask.is_floating_point() else mask for mask in masks)
    inputs = (torch.randn(1, 4, 5, 8).half(), *masks)
    case = request(Function(function), *inputs)
    assert "SOFTMAX" in layers(case), "it is no longer written out"
    verdict = compare(case, *inputs)
    assert verdict.outcome == "equal", verdict


BATCH, LENGTH = {0: Dim("batch", max=8)}, {2: Dim("length", min=2, max=16)}


def of_sizes(x):
    tokens = torch.arange(x.shape[2])
    return masked(x, (tokens[:, None] > tokens)[None, None])


# A function, its other inputs, and which sizes of all inputs are dynamic.
DYNAMIC = {
    "no mask, a batch": (lambda x: attention(x, x, x), (), [BATCH]),
    "no mask, two sizes": (lambda x: attention(x, x, x), (), [BATCH | LENGTH]),
    "causal, a batch": (lambda x: attention(x, x, x, is_causal=True), (), [BATCH]),
    "causal, a length": (lambda x: attention(x, x, x, is_causal=True), (), [LENGTH]),
    "a mask of sizes": (of_sizes, (), [LENGTH]),
    "a mask, a batch": (masked, (HIDDEN.repeat(2, 1, 1, 1),), [BATCH, BATCH]),
    "a cache": (
        lambda x, mask, cache: attention(x, cache, cache, mask),
        (HIDDEN, torch.randn(2, 4, 5, 8).half()),
        [LENGTH, LENGTH, {}],
    ),
}


@pytest.mark.parametrize("name", DYNAMIC)
def test_attention_in_half_precision_equals_eager_with_dynamic_sizes(name):
    function, others, sizes = DYNAMIC[name]
    inputs = (torch.randn(2, 4, 5, 8).half(), *others)
    case = Case(function, inputs, sizes).request()
    assert "SOFTMAX" in layers(case), "it is no longer written out"
    verdict = compare(case, *inputs)
    assert verdict.outcome == "equal", verdict


def test_a_long_causal_attention_with_dynamic_sizes_keeps_tensorrts_layer():
    inputs = (torch.randn(1, 4, 600, 8).half(),)
    long = {2: Dim("length", min=2, max=2048)}
    case = Case(lambda x: attention(x, x, x, is_causal=True), inputs, [long]).request()
    assert "ATTENTION_INPUT" in layers(case)


def layers(case):
    network = build_network(case, "tensorrt_rtx").network
    return {
        str(network.get_layer(index).type).split(".")[-1] for index in range(network.num_layers)
    }
