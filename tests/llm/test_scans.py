"""A recurrence over the tokens of a call equals the one that goes from token to token."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from trt_et.llm.scans import gated_delta_rule, mamba2

HEADS, GROUPS, WIDTH, STATE = 4, 2, 3, 5


def mamba2_by_token(x, dt, A, B, C, D, bias, state):
    results = []
    for token in range(x.shape[1]):
        step = F.softplus(dt[:, token] + bias)[..., None, None]
        writes, reads = (y[:, token].repeat_interleave(HEADS // GROUPS, 1) for y in (B, C))
        change = step * x[:, token, :, :, None] * writes[:, :, None]
        state = state * (step * A[:, None, None]).exp() + change
        results.append((state @ reads[..., None])[..., 0] + D[:, None] * x[:, token])
    return torch.stack(results, 1), state


def delta_rule_by_token(query, key, value, g, beta, state):
    query, key = (
        F.normalize(y, dim=-1).repeat_interleave(HEADS // GROUPS, 2) for y in (query, key)
    )
    results = []
    for token in range(query.shape[1]):
        state = state * g[:, token, :, None, None].exp()
        known = (key[:, token, :, None] @ state)[:, :, 0]
        change = (value[:, token] - known) * beta[:, token, :, None]
        state = state + key[:, token, :, :, None] * change[:, :, None]
        results.append((query[:, token, :, None] @ state)[:, :, 0] * STATE**-0.5)
    return torch.stack(results, 1), state


def rows(tokens: int, *shape: int) -> torch.Tensor:
    return torch.randn(1, tokens, *shape, dtype=torch.float64)


def check(found: tuple[torch.Tensor, ...], expected: tuple[torch.Tensor, ...]) -> None:
    for one, other in zip(found, expected, strict=True):
        assert one.shape == other.shape
        torch.testing.assert_close(one.double(), other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("tokens", [1, 2, 7, 40])
@pytest.mark.parametrize("pieces", [1, 3])
def test_mamba_2(tokens, pieces):
    torch.manual_seed(tokens)
    x, dt, reads = rows(tokens, HEADS, WIDTH), rows(tokens, HEADS), rows(tokens, GROUPS, STATE)
    writes = rows(tokens, GROUPS, STATE)
    rates, skip, bias = -torch.rand(HEADS) * 4, torch.randn(HEADS), torch.randn(HEADS)
    start = torch.randn(1, HEADS, WIDTH, STATE, dtype=torch.float64)
    state, results = start, []
    options = {"D": skip, "dt_bias": bias, "dt_limit": (0.0, float("inf"))}
    for part in torch.arange(tokens).chunk(pieces):
        inputs = (x[:, part], dt[:, part], rates, writes[:, part], reads[:, part])
        result, state = mamba2(*inputs, **options, initial_states=state)
        results.append(result)
    expected = mamba2_by_token(x, dt, rates, writes, reads, skip, bias, start)
    check((torch.cat(results, 1), state), expected)


def test_mamba_2_keeps_its_steps_within_their_limits():
    x, reads, writes = rows(3, HEADS, WIDTH), rows(3, GROUPS, STATE), rows(3, GROUPS, STATE)
    rates, skip, zero = -torch.rand(HEADS), torch.randn(HEADS), torch.zeros(HEADS)
    found = [
        mamba2(
            *(x, torch.full((1, 3, HEADS), step), rates, writes, reads),
            **{"D": skip, "dt_bias": zero, "dt_limit": (0.0, 0.5), "initial_states": None},
        )
        for step in (3.0, 9.0)
    ]
    for one, other in zip(*found, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("tokens", [1, 2, 7, 40])
@pytest.mark.parametrize("pieces", [1, 3])
@pytest.mark.parametrize("alike", [False, True])
def test_the_gated_delta_rule(tokens, pieces, alike):
    """Also for keys that are all alike, whose powers would not fit float32."""
    torch.manual_seed(tokens)
    query, key = rows(tokens, GROUPS, STATE), rows(tokens, GROUPS, STATE)
    if alike:
        key = key[:, :1].expand_as(key)
    value, decay, rate = (
        rows(tokens, HEADS, WIDTH),
        -rows(tokens, HEADS).abs() * 0.1,
        rows(tokens, HEADS),
    )
    rate = rate.sigmoid()
    start = torch.randn(1, HEADS, STATE, WIDTH, dtype=torch.float64)
    state, results = start, []
    for part in torch.arange(tokens).chunk(pieces):
        inputs = [x[:, part] for x in (query, key, value, decay, rate)]
        options = {"most_tokens": 40, "use_qk_l2norm_in_kernel": True}
        result, state = gated_delta_rule(*inputs, **options, initial_state=state)
        results.append(result)
    expected = delta_rule_by_token(query, key, value, decay, rate, start)
    check((torch.cat(results, 1), state), expected)
