"""KV caches of layers with a sliding window, which forget the tokens outside of it.

Rows form a ring, and a tensor has the position of each row. The rows of one call are always
consecutive, so that TensorRT can write them in place: a call that begins near the ring's end goes
on after it, and the next call begins at the ring's start.
"""

from __future__ import annotations

from typing import Final

import torch
from torch import nn

_LATER: Final = 2**30  # No token reaches this position, so the causal mask hides it.


def window_rows(window: int, max_prompt: int) -> int:
    """Return how many rows a cache needs if a call has at most ``max_prompt`` tokens.

    A call may overwrite no row that its first token sees: the ring has ``window - 1 + max_prompt``
    rows, and ``max_prompt - 1`` more after its end.
    """
    return window + 2 * max_prompt - 2


class WindowPositions(nn.Module):
    """The position of each row, for all layers with one window.

    Args:
        window: Tokens that a token sees, itself included.
        max_prompt: Most tokens of one call.
    """

    positions: torch.Tensor

    def __init__(self, window: int, max_prompt: int) -> None:
        super().__init__()
        self.ring = window - 1 + max_prompt
        rows = window_rows(window, max_prompt)
        self.register_buffer("positions", torch.zeros(rows, dtype=torch.long), persistent=False)

    def forward(self, start: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Write the positions of a call's tokens.

        Args:
            start: The position of the first token, of shape [].
            count: The number of tokens.

        Returns:
            The row of each token, and the position of each row.
        """
        steps = torch.arange(count, device=start.device)
        rows = steps + start % self.ring
        # Of an earlier text, or of a text that goes back to an earlier position.
        known = torch.where(self.positions < start, self.positions, _LATER)
        positions = known.index_copy(0, rows, steps + start)
        self.positions.copy_(positions)
        return rows, positions
