"""Layers of a cache of ``transformers`` that a decoder prepares once a call.

A ``StaticLayer`` counts its tokens and computes its own rows: five operators a layer, which all
passes of ExecuTorch visit. Here, the decoder computes the rows once a call. Recurrent states are
buffers that are zero when a text begins.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch


def make_cache_layer(length: int, *, sliding: bool = False) -> Any:  # noqa: ANN401
    """Make a layer for a ``StaticCache`` of ``transformers``, for keys and values of attention.

    Before each call of the model, set ``cumulative_length`` to the position of the first token and
    ``rows`` to the row of each token; ``positions`` of a layer with a sliding window too.

    Args:
        length: The number of rows.
        sliding: The layer is for a sliding window: ``positions`` has the position of each row.
    """
    return _layers()["window" if sliding else "cache"](length)


def make_recurrent_layer(tried: Any, length: int | None) -> Any:  # noqa: ANN401
    """Make a layer for a ``StaticCache`` of ``transformers``, for convolutions and recurrent state.

    Before each call of the model, call ``begin`` with the position of the first token.

    Args:
        tried: The layer of a ``DynamicCache`` after a call, whose states have the same shapes.
        length: The number of rows for keys and values, which the layer then has too, and for which
            what ``make_cache_layer`` says holds. None: it has none.
    """
    if length is None:
        return _layers()["recurrent"](tried)
    return _layers()["hybrid"](tried, length)


@cache
def _layers() -> dict[str, type]:
    """Return the classes; their bases need ``transformers``."""
    from transformers.cache_utils import LinearAttentionLayer, StaticLayer

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

    class RecurrentLayer(LinearAttentionLayer):
        def __init__(self, tried: Any) -> None:  # noqa: ANN401
            LinearAttentionLayer.__init__(self, number_of_states=tried.number_of_states)
            for index in range(tried.number_of_states):
                for states in ("conv_states", "recurrent_states"):
                    state = getattr(tried, states)[index]
                    if state is not None:
                        getattr(self, states)[index] = torch.zeros_like(state)
                        getattr(self, f"is_{states}_initialized")[index] = True
                self.conv_kernel_size[index] = tried.conv_kernel_size[index]
                self.has_previous_state[index] = True

        def begin(self, start: torch.Tensor) -> None:
            """Forget the text before, if position ``start`` [] begins a text."""
            for state in (*self.conv_states.values(), *self.recurrent_states.values()):
                if state is not None:
                    state.copy_(torch.where(start == 0, torch.zeros_like(state), state))

    class HybridLayer(RecurrentLayer, CacheLayer):
        def __init__(self, tried: Any, length: int) -> None:  # noqa: ANN401
            StaticLayer.__init__(self, length)
            RecurrentLayer.__init__(self, tried)

        lazy_initialization = StaticLayer.lazy_initialization

    return {
        "cache": CacheLayer,
        "window": WindowLayer,
        "recurrent": RecurrentLayer,
        "hybrid": HybridLayer,
    }
