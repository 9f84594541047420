"""The rows of a sliding window's cache: no call overwrites what its tokens see."""

from __future__ import annotations

import random

import pytest
import torch

from trt_et.llm.sliding_windows import WindowPositions, window_rows


@pytest.mark.parametrize(("window", "max_prompt"), [(1, 1), (4, 1), (1, 4), (5, 3), (3, 8)])
def test_every_token_finds_the_rows_of_its_window(window, max_prompt):
    places = WindowPositions(window, max_prompt)
    rows = torch.full((window_rows(window, max_prompt),), -1)  # The token in each row.
    choose, start = random.Random(0), 0
    for call in range(300):
        if call % 60 == 0:
            start = 0  # Another text.
        count = choose.randint(1, max_prompt)
        written, positions = places(torch.tensor(start), count)
        rows[written] = call // 60 * 10**6 + start + torch.arange(count)
        seen = range(max(0, start - window + 1), start + count)
        for position in seen:
            (found,) = (positions == position).nonzero()
            assert rows[found] == call // 60 * 10**6 + position
        # The causal mask hides all other rows.
        assert not ((positions >= start + count) & (positions < 10**6)).any()
        start += count
