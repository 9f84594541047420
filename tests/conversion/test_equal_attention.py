"""The networks of attention compute what eager computes."""

from __future__ import annotations

import pytest
from torch.nn import functional as F

from tests.support.programs.operator_networks import (
    BIAS,
    HEADS,
    KEYS,
    MASK,
    QUERIES,
    assert_network_equals_eager,
    assert_one_engine,
    randn,
)

CASES = {
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
BUILT = (
    "attention without a batch",
    "queries that see nothing",
    "queries that a bias leaves nothing",
)


@pytest.mark.parametrize("case", CASES)
def test_the_network_equals_eager(case):
    assert_network_equals_eager(*CASES[case])


@pytest.mark.parametrize("case", BUILT)
def test_an_engine_is_built(case):
    assert_one_engine(*CASES[case])
