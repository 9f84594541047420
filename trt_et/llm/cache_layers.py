"""Layers of a KV cache of ``transformers`` whose calls all write the same rows.

A ``StaticLayer`` counts its tokens and computes its own rows: five operators a layer, which all
passes of ExecuTorch visit. Here, the decoder computes the rows once a call.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch


def make_cache_layer(length: int, *, sliding: bool = False) -> Any:  # noqa: ANN401
    """Make a layer for a ``StaticCache`` of ``transformers``.

    Before each call of the model, set ``cumulative_length`` to the position of the first token and
    ``rows`` to the row of each token; ``positions`` of a layer with a sliding window too.

    Args:
        length: The number of rows.
        sliding: The layer is for a sliding window: ``positions`` has the position of each row.
    """
    return _layers()[sliding](length)


@cache
def _layers() -> tuple[type, type]:
    """Return the two classes; their base needs ``transformers``."""
    from transformers.cache_utils import StaticLayer

    class CacheLayer(StaticLayer):
        rows: torch.Tensor

        def update(
            self,
            key_states: torch.Tensor,
            value_states: torch.Tensor,
            *args: object,
            **kwargs: object,
        ) -> tuple[torch.Tensor, torch.Tensor]:
            self.keys.index_copy_(2, self.rows, key_states)
            self.values.index_copy_(2, self.rows, value_states)
            return self.keys, self.values

    class WindowLayer(CacheLayer):
        is_sliding = True
        positions: torch.Tensor

        def get_mask_sizes(self, query_length: int) -> tuple[int, Any]:
            """Return the rows, and what to add to each row's number to get its position."""
            rows = torch.arange(self.max_cache_len, device=self.positions.device)
            return self.max_cache_len, self.positions - rows

    return CacheLayer, WindowLayer
