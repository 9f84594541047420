"""How the keys and values that Whisper's decoder attends to come from its encoder."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


class CrossAttention(nn.Module):
    """Both methods have one: the encoder's makes its output, the decoder's reads it.

    Here the output is the hidden states, and each call of the decoder computes keys and values.

    Attributes:
        output_shape: The shape of the encoder's output.
    """

    def __init__(self, model: Any) -> None:  # noqa: ANN401
        super().__init__()
        config = model.config
        self.model = model
        self.rows: int = config.max_source_positions
        self.layers: int = config.decoder_layers
        self.heads: int = config.decoder_attention_heads
        self.width: int = config.d_model
        self.output_shape: tuple[int, ...] = (1, self.rows, self.width)

    def encoder_output(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return the encoder's output for its hidden states [1, rows, width]."""
        return hidden

    def keys_and_values(
        self, index: int, output: torch.Tensor, position: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the keys and values of a layer, [1, heads, rows, width of a head]."""
        keys, values = self.project(index, output)
        return self.split_heads(keys), self.split_heads(values)

    def project(self, index: int, hidden: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Compute keys and values [1, rows, width] of a layer from the encoder's hidden states."""
        attention = self.model.model.decoder.layers[index].encoder_attn
        return attention.k_proj(hidden), attention.v_proj(hidden)

    def split_heads(self, rows: torch.Tensor) -> torch.Tensor:
        """Turn keys or values [1, rows, width] into [1, heads, rows, width of a head]."""
        return rows.view(1, -1, self.heads, self.width // self.heads).transpose(1, 2)


class OutputOfEncoder(CrossAttention):
    """The output is the keys and values of all layers, [2 * layers, rows, width]."""

    def __init__(self, model: Any) -> None:  # noqa: ANN401
        super().__init__(model)
        self.output_shape = (2 * self.layers, self.rows, self.width)

    def encoder_output(self, hidden: torch.Tensor) -> torch.Tensor:
        """Compute the keys and values of all layers."""
        return torch.cat([rows for i in range(self.layers) for rows in self.project(i, hidden)])

    def keys_and_values(
        self, index: int, output: torch.Tensor, position: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Read them from the output."""
        keys, values = output[2 * index : 2 * index + 1], output[2 * index + 1 : 2 * index + 2]
        return self.split_heads(keys), self.split_heads(values)


class SharedBuffers(CrossAttention):
    """The encoder leaves keys and values in buffers that both methods have, by the same names.

    Both methods must write them, or they would be constants in the decoder. They have one row more
    than the output, which the decoder writes.
    """

    def __init__(self, model: Any) -> None:  # noqa: ANN401
        super().__init__(model)
        shape = (1, self.heads, self.rows + 1, self.width // self.heads)
        for index in range(self.layers):
            for name in ("keys", "values"):
                zeros = torch.zeros(shape, dtype=model.dtype, device=model.device)
                self.register_buffer(f"{name}_{index}", zeros, persistent=False)

    def encoder_output(self, hidden: torch.Tensor) -> torch.Tensor:
        """Write the keys and values of all layers, and return the hidden states."""
        for index in range(self.layers):
            for name, rows in zip(("keys", "values"), self.project(index, hidden), strict=True):
                cache: torch.Tensor = getattr(self, f"{name}_{index}")
                cache.index_copy_(2, torch.arange(self.rows), self.split_heads(rows))
        return hidden

    def keys_and_values(
        self, index: int, output: torch.Tensor, position: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Read them from the buffers."""
        return self._read(f"keys_{index}", position), self._read(f"values_{index}", position)

    def _read(self, name: str, number: torch.Tensor) -> torch.Tensor:
        """Write a number to the additional row, and return the other rows.

        TensorRT-RTX builds no engine that writes constants in place.
        """
        cache: torch.Tensor = getattr(self, name)
        row = number.to(cache.dtype).expand(*cache.shape[:2], 1, cache.shape[3])
        cache.index_copy_(2, torch.tensor([self.rows]), row)
        return cache[:, :, : self.rows]
