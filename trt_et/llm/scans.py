"""Recurrences over the tokens of one call, as products of matrices that have a row per token.

``transformers`` cuts a text into chunks of a fixed size and goes from chunk to chunk in a loop,
which no program with a dynamic number of tokens can have. Here a call is one chunk: the state
before it is a buffer. So memory grows with the square of a call's tokens, as in attention.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

Scan = Callable[..., Any]


def mamba2(
    hidden_states: torch.Tensor,
    dt: torch.Tensor,
    A: torch.Tensor,
    B: torch.Tensor,
    C: torch.Tensor,
    *,
    D: torch.Tensor,
    dt_bias: torch.Tensor,
    dt_limit: tuple[float, float],
    initial_states: torch.Tensor | None,
    **_: object,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute Mamba 2's state space dual form (Dao and Gu, 2024, arXiv 2405.21060, section 6).

    Takes the place of ``mamba2_chunk_scan`` of ``transformers``, whose names the arguments have.

    Args:
        hidden_states: [1, n, heads, width].
        dt: [1, n, heads].
        A: [heads], negative.
        B: [1, n, groups, state].
        C: [1, n, groups, state].
        D: [heads].
        dt_bias: [heads].
        dt_limit: The least and the largest step.
        initial_states: [1, heads, width, state], or None for zeros.

    Returns:
        The result [1, n, heads, width], and the new state, both in float32.
    """
    steps = F.softplus(dt.float() + dt_bias.float()).clamp(*dt_limit).transpose(1, 2)
    total, decay = _decays(steps * A.float()[:, None])
    values = hidden_states.float().transpose(1, 2)
    inputs = values * steps[..., None]
    reads, writes = (_per_head(x.float().transpose(1, 2), A.shape[0]) for x in (C, B))
    result = (reads @ writes.transpose(-1, -2) * decay) @ inputs
    kept = inputs * (total[..., -1:] - total).exp()[..., None]
    state = kept.transpose(-1, -2) @ writes
    if initial_states is not None:
        before = initial_states.float()
        result = result + reads @ before.transpose(-1, -2) * total.exp()[..., None]
        state = state + before * total[..., -1:, None].exp()
    result = result + values * D.float()[:, None, None]
    return result.transpose(1, 2).contiguous(), state


def gated_delta_rule(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
    *,
    most_tokens: int,
    initial_state: torch.Tensor | None = None,
    use_qk_l2norm_in_kernel: bool = False,
    **_: object,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute the gated delta rule (Yang et al., 2024, arXiv 2412.06464, section 3.3).

    Takes the place of ``torch_chunk_gated_delta_rule`` of ``transformers``, whose names the
    arguments have.

    Args:
        query: [1, n, key heads, key width].
        key: [1, n, key heads, key width].
        value: [1, n, heads, value width].
        g: The logarithms of the decays, [1, n, heads].
        beta: [1, n, heads].
        most_tokens: The largest n.
        initial_state: [1, heads, key width, value width], or None for zeros.
        use_qk_l2norm_in_kernel: Normalize the queries and keys.

    Returns:
        The result [1, n, heads, value width], and the new state in float32.
    """
    heads = value.shape[2]
    queries, keys = (_per_head(x.float().transpose(1, 2), heads) for x in (query, key))
    if use_qk_l2norm_in_kernel:
        queries, keys = (x * (x.square().sum(-1, True) + 1e-6).rsqrt() for x in (queries, keys))
    queries = queries * query.shape[-1] ** -0.5
    rates = beta.float().transpose(1, 2)[..., None]
    total, decay = _decays(g.float().transpose(1, 2))
    since_start = total.exp()[..., None]
    changes = value.float().transpose(1, 2)
    if initial_state is not None:
        changes = changes - keys @ initial_state.float() * since_start
    effects = (keys * rates) @ keys.transpose(-1, -2) * decay
    changes = _unit_lower_inverse(effects, most_tokens) @ (changes * rates)
    result = (queries @ keys.transpose(-1, -2) * decay) @ changes
    kept = keys * (total[..., -1:] - total).exp()[..., None]
    state = kept.transpose(-1, -2) @ changes
    if initial_state is not None:
        before = initial_state.float()
        result = result + queries @ before * since_start
        state = state + before * total[..., -1:, None].exp()
    return result.transpose(1, 2).to(query.dtype).contiguous(), state


def _decays(logarithms: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the sums of [..., n] up to each token, and the decays [..., n, n] between two tokens.

    The decay from a token to an earlier one is 0.
    """
    total = logarithms.cumsum(-1)
    tokens = torch.arange(total.shape[-1], device=total.device)
    later = tokens[:, None] < tokens
    between = (total[..., :, None] - total[..., None, :]).masked_fill(later, float("-inf"))
    return total, between.exp()


def _unit_lower_inverse(matrix: torch.Tensor, most_rows: int) -> torch.Tensor:
    """Invert a lower triangular matrix [..., n, n], with ones in place of its diagonal.

    The inverses of two neighbouring blocks on the diagonal make the one of both: for ``[[A, 0],
    [C, B]]`` the rest is ``-inv(B) @ C @ inv(A)``. The blocks double until ``most_rows``.
    """
    rows = torch.arange(matrix.shape[-1], device=matrix.device)
    inverse = (rows[:, None] == rows).to(matrix.dtype)
    size = 1
    while size < most_rows:
        half, whole = rows // size, rows // (2 * size)
        below = (whole[:, None] == whole) & (half[:, None] > half)
        rest = torch.where(below, matrix, 0.0)
        inverse = inverse - (rest if size == 1 else inverse @ rest @ inverse)
        size *= 2
    return inverse


def _per_head(groups: torch.Tensor, heads: int) -> torch.Tensor:
    """Repeat groups [1, groups, n, width] for the heads that share them."""
    _, count, tokens, width = groups.shape
    return groups[:, :, None].expand(1, count, heads // count, tokens, width).flatten(1, 2)


def scans(most_tokens: int) -> Mapping[str, Scan]:
    """Return what takes the place of functions of ``transformers``, by their names."""
    return {
        "mamba2_chunk_scan": mamba2,
        "torch_chunk_gated_delta_rule": partial(gated_delta_rule, most_tokens=most_tokens),
    }


@contextmanager
def replaced(model: nn.Module, functions: Mapping[str, Scan]) -> Iterator[None]:
    """Replace functions, by their names, in the Python modules of a model's classes."""
    files = [sys.modules[name] for name in {type(module).__module__ for module in model.modules()}]
    before = [(file, name, getattr(file, name, None)) for file in files for name in functions]
    found = [entry for entry in before if entry[2] is not None]
    try:
        for file, name, _ in found:
            setattr(file, name, functions[name])
        yield
    finally:
        for file, name, function in found:
            setattr(file, name, function)
